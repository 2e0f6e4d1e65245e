"""Secrets in 300 forms of commands are hidden, and 300 ordinary commands stay as they are."""

from __future__ import annotations

import re
import shlex
from itertools import product
from pathlib import Path

import pytest

from tracekit.runs.command_redaction import MAX_CODE
from tracekit.runs.redaction import redact_command

SECRETS = ("hunter2x", "-dash9pw", "S3 cr3t")
NAMES = (
    *("hf-token", "api_key", "password", "WANDB_API_KEY", "HF_TOKEN", "aws_secret_access_key"),
    *("bearer", "jwt", "creds", "pat", "sas", "pass-phrase", "db_pass", "clientSecret", "auth"),
)
OPTIONS = [["--NAME", "S"], ["--NAME=S"], ["-NAME", "S"], ["-DNAME=S"], ["--set", "NAME", "S"], ["NAME=S"]]
SHELL = [
    ["bash", "-c", "python x.py --NAME 'S' --epochs 3"],
    ["sh", "-lc", 'cd /x && NAME="S" python x.py; echo done'],
    ["ssh", "box", "export NAME='S' && (python x.py)"],
    ["bash", "-c", "bash -c \"python x.py --NAME 'S'\""],
]
VARIABLES = ("WANDB_API_KEY", "HF_TOKEN", "PASSWORD", "AWS_SECRET_ACCESS_KEY", "db_pass", "client_secret")
PYTHON = [
    "import os; os.environ['NAME']='S'; train()",
    'import os; os.environ["NAME"] = "S"',
    "os.environ.setdefault('NAME', 'S')",
    "os.putenv('NAME', 'S'); main(3)",
    "client = Client(NAME=r'S')",
    "x = os.getenv('NAME', 'S')",
    "config = {'NAME': 'S', 'lr': 0.1}",
    "NAME = 'S' + suffix",
    "os.system('train --NAME=\"S\" --lr 1')",
    "settings.NAME = f'S{1}'",
]
OTHER = [
    *(["sshpass", "-p", "S", "ssh", "box"], ["sshpass", "-pS", "ssh", "box"], ["mysql", "-u", "ann", "-pS"]),
    *(["redis-cli", "-a", "S"], ["zip", "-P", "S", "x.zip"], ["docker", "login", "-u", "ann", "-p", "S"]),
    *(["wandb", "login", "S"], ["python", "-c", "import wandb; wandb.login(key='S')"]),
    *(["python", "-c", "from huggingface_hub import login; login('S')"], ["export", "KEY", "S"]),
    *(["bash", "-c", "mysql -uann -pS"], ["bash", "-c", "mysql -pS < dump"]),
    *(["python", "-c", "import os; os.system(f'mysql -pS {name}')"],),
    *(["bash", "-c", "echo 'S' | docker login -u ann --password-stdin"], ["python", "x.py", "--pass", "S"]),
    *(["python", "-c", "from_pretrained('x', use_auth_token='S')"], ["python", "x.py", "--kms-key", "S"]),
    *(["kubectl", "create", "secret", "generic", "x", "--from-literal=key=S"], ["x", "--pin-code=S"]),
    *(["fish", "-c", "set -x HF_TOKEN 'S'; python x.py"], ["t.py", "--openai_key", "S"]),
    *(["bash", "-c", "cat <<EOF > .netrc\nmachine x.org login ann password 'S'\nEOF\npython x.py"],),
    *(["curl", "-u", "ann:S", "https://x.org"], ["git", "clone", "https://ann:S@x.org/y"]),
]
TOKENS = (
    *("gsk_" + "aB3" * 12, "tskey-auth-" + "kX9cNTRL-" * 3, "hf_" + "AbCdEfGhIj" * 3, "ghp_" + "a1B2" * 9),
    *("Zk39xQp2LmW8vTr5YbN1", "q8Zr-2LmK9x_VtB4nW7y-cD1eF5gH3jJ", "xai-" + "Ab9" * 10, "glpat-" + "a1B2" * 5),
)


def filled(form: list[str], name: str, secret: str) -> list[str]:
    """The form with a name and a secret for `NAME` and a lone `S`."""
    words = [re.sub(r"(?<![A-Za-z])S(?![A-Za-z])|(?<=-p)S", lambda _: secret, word) for word in form]
    return [word.replace("NAME", name) for word in words]


def forms() -> list[tuple[list[str], str]]:
    """Commands, each with the secret in it."""
    plain = [
        (filled(form, name, secret), secret) for name, form, secret in product(NAMES, OPTIONS, SECRETS[:2])
    ]
    shell = [
        (filled(form, name.replace("-", "_"), secret), secret)
        for name, form, secret in product(NAMES[:6], SHELL, (SECRETS[0], SECRETS[2]))
    ]
    python = [
        (["python", "-c", *filled([code], name, SECRETS[0])], SECRETS[0])
        for name, code in product(VARIABLES, PYTHON)
    ]
    other = [(filled(form, "", SECRETS[0]), SECRETS[0]) for form in OTHER]
    tokens = [(words, token) for token in TOKENS for words in ([token], ["--note", f"with {token}"])]
    return [*plain, *shell, *python, *other, *tokens]


PROGRAMS = [
    "python train.py",
    "torchrun --nproc_per_node 8 train.py",
    "python -m vllm.entrypoints.openai.api_server",
    "accelerate launch --mixed_precision bf16 run_clm.py",
    "deepspeed --num_gpus=4 pretrain.py",
    "uv run a.py",
    "srun -n 4 --gpus 4 python main.py",
    "python -X faulthandler -m pkg.train",
    "env OMP_NUM_THREADS=4 python x.py",
    "bash -c 'cd /data/x && python train.py --epochs 3 2>&1 | tee log.txt'",
    "nice -n 10 python bench.py",
]
ARGUMENTS = [
    "--lr 3e-4 --batch-size 64",
    "--model meta-llama/Meta-Llama-3.1-8B-Instruct --max-tokens 512",
    "--tokenizer gpt2 --pad_token_id 50256",
    "--config configs/ViT-B16_224.yaml",
    "--seed 1234 --fp16",
    "--resume /ckpt/step_00012000/optimizer.pt",
    "--num-tokens 4096 --max-new-tokens 128",
    "--use-auth-token",
    "--revision 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    "--dataset wikitext-103-raw-v1 --split train[:10%]",
    "model=resnet50 optimizer.lr=0.1 trainer.max_epochs=5",
    "--key-dim 64 --value-dim 64 --num-heads 8",
    "--image nvcr.io/nvidia/pytorch:24.05-py3",
    "--run-name 2026-11-28_baseline_bs64_lr3e-4",
    "--no-token-drop",
    "--id 550e8400-e29b-41d4-a716-446655440000",
    "--positional-keys rotary --attn-pass 2",
    "-p 8080:80 -e A=1",
    "--layers DistributedDataParallel,TransformerEncoderLayer",
    "--shapes 1x3x224x224 8x3x224x224",
    "--url https://example.org/data/train-00001-of-00064.parquet",
    "--text 'two words; and (more)'",
    "-c 'import torch; print(torch.ones(3).sum())'",
    "--auto-resume --passes 3 --monkey 1 --keyboard us",
    "--tokens-per-second 100",
    "--pass 2 --partition-key day --sort-key size",
    "--patience 3 --path out/",
    "--sasrec --author ann-lee --patch 16",
    "--expr 'lambda x: x[\"key\"] > 3'",
]


def read_commands(name: str) -> list[list[str]]:
    """The words of each line of a file; a sign stands for the end of a line in a word."""
    lines = Path(__file__).with_name(name).read_text().splitlines()
    return [[word.replace("⏎", "\n") for word in shlex.split(line)] for line in lines]


def test_secrets_of_real_commands_are_hidden() -> None:
    commands = read_commands("commands_with_secrets.txt")
    assert len(commands) >= 300
    left = [words for words in commands if SECRETS[0] in " ".join(redact_command(words))]
    assert len(left) <= len(commands) // 100, left
    assert [
        words for words in commands if redact_command(words)[0].split("=")[0] != words[0].split("=")[0]
    ] == []


def test_real_commands_without_secrets_stay_as_they_are() -> None:
    commands = read_commands("ordinary_commands.txt")
    assert len(commands) >= 300
    assert [words for words in commands if redact_command(words) != words] == []


def test_secrets_are_hidden() -> None:
    made = forms()
    assert len(made) >= 300
    left = [words for words, secret in made if secret in " ".join(redact_command(["python", "x.py", *words]))]
    assert len(left) <= len(made) // 100, left


@pytest.mark.parametrize("program", PROGRAMS)
def test_ordinary_commands_stay_readable(program: str) -> None:
    assert len(PROGRAMS) * len(ARGUMENTS) >= 300
    commands = [shlex.split(f"{program} {arguments}") for arguments in ARGUMENTS]
    assert [redact_command(words) for words in commands] == commands


def test_the_rest_of_code_stays_as_it_is_written() -> None:
    code = "import os\n\nos.environ['HF_TOKEN'] = 'SX'  # é\ntrain(lr=0.1, password='SX', name='ann')"
    assert redact_command(["python", "-c", code])[-1] == code.replace("SX", "***")
    shell = "cd /x  &&  HF_TOKEN=x1 python a.py --password 'y 2' | tee \"a b\""
    assert redact_command(["bash", "-c", shell])[-1] == (
        'cd /x  &&  HF_TOKEN=*** python a.py --password *** | tee "a b"'
    )


@pytest.mark.parametrize(
    "code", ["'" * 50, "(" * 5000, "a\x00b c", "$(" * 300 + " x", "\\", "f(" + "'a ' + " * 900 + "'')"]
)
def test_code_that_cannot_be_parsed_is_no_error(code: str) -> None:
    assert redact_command(["bash", "-c", f"{code} --password hunter2x"])


@pytest.mark.parametrize("terms", [500, 1_500, 2_500])
def test_sums_nested_deeper_than_functions_can_be_are_no_error(terms: int) -> None:
    code = redact_command(["python", "-c", "password = " + "+".join(["'hunter2x'"] * terms)])[-1]
    assert code.startswith("password = '***'")


def test_code_nested_deeper_than_is_parsed_is_hidden() -> None:
    code = "train --password 'hunter2x y'"
    for _ in range(7):
        code = f"bash -c {shlex.quote(code)}"
        assert "hunter2x" not in " ".join(redact_command(shlex.split(code)))


@pytest.mark.parametrize("code", ["x=1;", "f('a b') ; ", "k=v "])
def test_long_code_is_hidden_instead_of_parsed(code: str) -> None:
    short, long = code * 100, code * (MAX_CODE // len(code) + 1)
    assert redact_command(["bash", "-c", short, "python", "-c", short]) == [
        "bash",
        "-c",
        short,
        "python",
        "-c",
        short,
    ]
    assert redact_command(["bash", "-c", long]) == ["bash", "-c", "***"]
    half = code * (MAX_CODE // len(code) * 2 // 3)
    assert redact_command(["bash", "-c", half, half])[2:] == [half, "***"]
    assert redact_command(["python", "-c", half, half, "-c", "login(token='s3cr3t')"])[4:] == ["-c", "***"]
