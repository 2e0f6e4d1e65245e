from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs import make_meta
from tests.tiers import UNTIMED
from tests.unit.runs.gitleaks import BY_NAME, RULES, UNKNOWN, formed
from tracekit.runs import redaction
from tracekit.runs.meta import Collector, Diagnostic, Git, Level

HF = "hf_" + "AbCdEfGhIj" * 3
SECRET = "s3cr3t-" + "V4lue"


@pytest.mark.parametrize(
    "words",
    [
        ["--token=" + SECRET],
        ["--token", SECRET],
        ["--hf_token", SECRET],
        ["--apiKey", SECRET],
        ["-password", SECRET],
        ["AWS_SECRET=" + SECRET],
        ["AWS_SECRET_ACCESS_KEY=" + SECRET],
        ["AWS_ACCESS_KEY_ID=" + SECRET],
        ["DB_PASS=" + SECRET],
        ["WANDB_API_KEY=" + SECRET],
        ["+trainer.wandb.api_key=" + SECRET],
        ["--url", f"https://ann:{SECRET}@example.org/x"],
        [f"https://{SECRET}@example.org"],
        ["--header", f"Authorization: Bearer {SECRET}"],
        [f"bash -c 'export API_TOKEN={SECRET}; python train.py'"],
        [f'{{"password": "{SECRET}"}}'],
        [f"s3://bucket/x?X-Amz-Security-Token={SECRET}&y=1"],
        ["--url", f"postgres://ann:a/b@c#{SECRET}@db/x"],
        ["--url", f"redis://:{SECRET}@db:6379/0"],
        [f"https://h/x?X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}"],
        [
            f"https://h/x?sv=2024&sig={SECRET}",
            f"https://h/x?Expires=1&Signature={SECRET}&Key-Pair-Id={SECRET}",
        ],
        ["PGPASSWORD=" + SECRET],
        ["REDISCLI_AUTH=" + SECRET],
        [f"sh -c 'PGPASSWORD=\"two {SECRET}\" psql'"],
        [f'{{\\"password\\": \\"two, {SECRET}\\"}}'],
        [f"{{'db': {{'secret': 'two) {SECRET}'}}}}"],
        ["-H", f"Cookie: a=b; sid={SECRET}; theme=dark"],
        ["--cookie", f"sid={SECRET}"],
        *(["-H", f"Authorization: {scheme}{SECRET}"] for scheme in ("", "Negotiate ", "ApiKey ", "Token ")),
        ["-H", f'Authorization: Digest username="ann", response="{SECRET}"'],
        ["-H", f"Authorization: AWS4-HMAC-SHA256 Credential={SECRET}, Signature={SECRET}"],
        [f"curl -H 'Proxy-Authorization: Basic {SECRET}' https://example.org"],
        ["-u", f"ann:{SECRET}"],
        [f"--user=ann:{SECRET}"],
        [f"bash -c 'curl -u ann:{SECRET} https://example.org'"],
        ["--auth", SECRET],
        [f"--basic-auth=ann:{SECRET}"],
    ],
)
def test_a_secret_in_a_command_is_hidden(words: list[str]) -> None:
    reported = redaction.redact_command(["python", "train.py", *words, "--steps", "5"])
    assert SECRET not in " ".join(reported)
    assert reported[:2] + reported[-2:] == ["python", "train.py", "--steps", "5"]


@pytest.mark.parametrize(
    "secret",
    [
        HF,
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        "glpat-" + "a1B2" * 5,
        "AKIAIOSFODNN7EXAMPLE",
        "AIza" + "b" * 35,
        "xoxb-123456789012-abcdef",
        "sk-" + "a1B2" * 8,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY----- MIIEow -----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,1F-2\n\nMIIE\n"
        "-----END RSA PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\nlQOY\n-----END PGP PRIVATE KEY BLOCK-----",
        "npm_" + "a1B2" * 9,
        "pypi-" + "AgEIcHlwaS5vcmc" + "a1B2" * 9,
        "dckr_pat_" + "a1B2" * 6,
        "sk_live_" + "a1B2" * 6,
        "ya29." + "a1B2" * 9,
        "nvapi-" + "a1B2" * 9,
        "dapi" + "a1b2" * 8,
        "r8_" + "a1B2" * 9,
        "hooks.slack.com/services/T00000000/B00000000/" + "a1B2" * 6,
        "discord.com/api/webhooks/123456789/" + "a1B2" * 9,
    ],
)
def test_what_has_the_shape_of_a_secret_is_hidden_wherever_it_stands(secret: str) -> None:
    for text in (secret, f"kernel<{secret}>", f"login with {secret}, then"):
        assert redaction.redact_text(text) == text.replace(secret, redaction.HIDDEN)


ORDINARY = """
python train.py --epochs 5 --tokenizer bert-base --auth-free
python -u train.py --lr 3e-4 --batch-size 32
python -m pkg.train --config configs/a.yaml --seed 7
torchrun --nproc-per-node 2 --rdzv-endpoint localhost:29500 train.py
accelerate launch --num_processes 8 --mixed_precision bf16 train.py
deepspeed --include node1:0,1@node2:0 train.py
python train.py model@backbone=resnet50 +trainer.devices=2 hydra.run.dir=out
python train.py --max-tokens 512 --pad-token <pad> --num_tokens=4 --token-type bpe
python train.py --tokens-per-step 4096 --key value --keys a,b --pass 2
python train.py --resume 4d9c1f4d9c1f4d9c1f4d9c1f4d9c1f4d9c1fabcd
python train.py --revision sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
python train.py --data s3://bucket/a@b/c?versionId=3 --cache /scratch/cache
python train.py --url https://example.org:8080/a@b?email=x&page=2
python train.py --master-addr 10.0.0.1 --master-port 29500
docker run -u 1000:1000 -v /data:/data -p 80:80 image:latest
docker run --user 0:0 --gpus all nvcr.io/nvidia/pytorch:25.01-py3
pip install torch==2.9.0 numpy>=1.26
pip install git+https://github.com/x/y@main#egg=y
pip install torch@https://example.org/torch.whl
locust -u https://example.org/x
npx create@latest app
git clone git@github.com:x/y.git
git checkout HEAD~1
env CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=8 python train.py
srun --nodes=2 --partition=gpu --time=01:00:00 python train.py
nsys profile -t cuda,nvtx -o report python train.py
ncu --set full --kernel-name regex:gemm python train.py
numactl --cpunodebind=0 --membind=0 python train.py
python train.py --no-auth --skip-auth --use-auth-token
python train.py --author ann --authority none --cookiecutter x
python train.py --compass 3 --bypass 2 --passes 4
python train.py --keyboard us --monkey 1 --turkey 2
python train.py --secretary x --tokenize --key-size 2048
python train.py --layers conv:relu:pool --shape 3:224:224
python train.py --name run-2026-11-21T10:00:00Z
python train.py --data /home --out /usr/home-page --users 5
python train.py --prompt "what is attention: a survey"
python train.py --sk-learn --hf-model meta-llama/Llama-3.1-8B-Instruct
python train.py --optimizer adam@1 --image repo/image@sha256:abc
python train.py --regex ^a.*b$ --glob **/*.py --home ~/data
python train.py --policy=ppo --code=5 --state=ready
python examples/dapi.py --r8 --pypi-index x --npm-run build
"""


@pytest.mark.parametrize("command", ORDINARY.strip().splitlines())
def test_an_ordinary_command_stays(command: str) -> None:
    assert redaction.redact_command(command.split()) == command.split()
    assert redaction.redact_command(["bash", "-c", command]) == ["bash", "-c", command]


@pytest.mark.parametrize(
    ("word", "reported"),
    [
        ("/mnt/home/ann/x", "~/x"),
        ("/gpfs/fs1/home/ann", "~"),
        ("/Users/Ann Lee/x.py", "~/x.py"),
        ("/Users/Ann Lee", "~"),
        (r"C:\Users\Ann Lee\x.py", r"~\x.py"),
        (r"sh -c 'ls /Users/Ann\ Lee/x'", "sh -c 'ls ~/x'"),
        ("--data=~ann/x", "--data=~/x"),
        ("~ann", "~"),
        ("ann@gpu-box", "***@gpu-box"),
        ("ann.lee@gpu-box.example.org:/data/x", "***@gpu-box.example.org:/data/x"),
        ("ssh ann@gpu-box ls", "ssh ***@gpu-box ls"),
        ("--mail=ann@example.org", "--mail=***@example.org"),
    ],
)
def test_a_persons_name_in_a_command_is_hidden(word: str, reported: str) -> None:
    assert redaction.redact_command([word]) == [reported]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule", [name for name in RULES if BY_NAME not in RULES[name] and name not in UNKNOWN]
)
@settings(derandomize=True, max_examples=3, suppress_health_check=UNTIMED, deadline=None)
@given(data=st.data())
def test_no_rule_of_gitleaks_finds_a_form(rule: str, data: st.DataObject) -> None:
    secret = data.draw(formed(rule))
    assert re.search(RULES[rule], secret)
    assert not re.search(RULES[rule], " ".join(redaction.redact_command(["train.py", secret])))


@pytest.mark.parametrize(
    "words",
    [
        ["--tokenizer", "gpt2", "--max-tokens", "512", "--pad-token", "<pad>", "--num_tokens=4"],
        ["--eos_token=</s>", "--key", "value", "--keys", "a", "--pass", "2", "--author", "ann"],
        ["void at::native::kernel<float, std::array<char*, 3ul>>(int, float)", "ampere_sgemm_128x64_tn"],
        ["void moe::token::permute<float>(int)", "auth::check::run()", "Token::Embedding"],
        ["aten::embedding", "Sequence number: 123456", "task-1_2", "https://example.org/a@b?c=d"],
        ["4d9c1f" * 6 + "abcd"],
    ],
)
def test_what_is_no_secret_stays(words: list[str]) -> None:
    assert redaction.redact_command(words) == words


def test_a_secret_that_a_guard_compares_is_hidden() -> None:
    guards = ["self.api_key == 'abcd1234'", "L['password'] == \"hunter22\"", "self.mode == 'abcd1234'"]
    assert [redaction.redact_text(guard) for guard in guards] == [
        "self.api_key == '***'",
        "L['password'] == \"***\"",
        guards[2],
    ]


def test_a_persons_folder_is_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/ann")
    reported = redaction.redact_texts(
        [
            "/data/people/ann/train.py(12): forward",
            "/data/people/annabel/x",
            "/home/bob/x.py;/Users/bob/y.py",
            r"C:\Users\bob\x.py and C:\\Users\\bob\\y.py",
            "/opt/home/bob",
            "/data/people/ann",
        ]
    )
    assert reported == [
        "~/train.py(12): forward",
        "/data/people/annabel/x",
        "~/x.py;~/y.py",
        r"~\x.py and ~\\y.py",
        "/opt/home/bob",
        "~",
    ]


def test_everything_that_is_known_of_a_run_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-box.lan.example")
    meta = make_meta(
        label=f"with {HF}",
        workload={"name": "mine", "api_key": SECRET, "deep": [{"url": f"https://a:{SECRET}@h/"}]},
        collector=Collector("import", "1", {"arguments": ["--token", SECRET], "host": "gpu-box"}),
        command=["ssh", "gpu-box.lan.example", "--token", SECRET],
        git=Git("a" * 40, "b" * 40, f"fix-{HF}", False, None, "", {"/home/bob/sub": "c" * 40}),
        environment={"os": "Linux", "password": SECRET},
        fingerprint={"flags": f"token={SECRET}"},
        diagnostics=[Diagnostic(Level.INFO, "x", f"gpu-box: /home/bob/x; PASSWORD={SECRET}")],
    )
    reported = redaction.redact_meta(meta)
    text = repr(reported)
    for gone in (SECRET, HF, "gpu-box", "bob"):
        assert gone not in text
    assert (reported.run_id, reported.git and reported.git.sha) == (meta.run_id, "a" * 40)
    assert redaction.redact_meta(reported) == reported


def test_the_name_of_a_trace_does_not_tell_the_machine() -> None:
    name = "gpu-box.lan_4711.1763694900000000000.pt.trace.json.gz"
    assert redaction.redact_trace_name(name) == "trace_4711.1763694900000000000.pt.trace.json.gz"
    assert (
        redaction.redact_text(f"left out {name}: damaged")
        == f"left out {redaction.redact_trace_name(name)}: damaged"
    )


def test_json_stays_json() -> None:
    text = json.dumps({"token": 123456, "password": SECRET, "url": f"http://u:{SECRET}@h/x", "steps": [1.5]})
    reported = json.loads(redaction.redact_text(text))
    assert reported == {"token": 123456, "password": "***", "url": "http://***@h/x", "steps": [1.5]}


@given(st.lists(st.text(max_size=60) | st.sampled_from([f"TOKEN={SECRET}", HF, "/home/ann/x", "aten::mm"])))
def test_many_texts_at_once_are_told_as_each_alone(values: list[str]) -> None:
    assert redaction.redact_texts(values) == [redaction.redact_text(value) for value in values]


@pytest.mark.slow_except(4)
@pytest.mark.parametrize(
    "piece",
    [
        "key",
        "a",
        "a:",
        "token=",
        "_1",
        "://",
        "/home/",
        "eyJ",
        "1.",
        "'=:",
        'pw="',
        "~a",
        "-----BEGIN PRIVATE KEY-----",
        "cookie:a=b;",
        "/mnt",
        "-u a:",
        "set-cookie:",
    ],
)
def test_text_of_any_length_is_read_once(piece: str) -> None:
    long = piece * 40_000 + "://token=.pt.trace.json/home/" + piece * 40_000
    assert isinstance(redaction.redact_text(long), str)  # quadratic time would end in the timeout


@given(st.text(max_size=80))
def test_redaction_twice_changes_nothing_more(value: str) -> None:
    once = redaction.redact_text(value)
    assert redaction.redact_text(once) == once


def test_a_home_at_the_root_takes_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")
    assert redaction.redact_text("/usr/lib/x") == "/usr/lib/x"
    assert not re.search("~", redaction.redact_text(str(Path("/opt/x"))))


def test_names_of_secrets() -> None:
    assert all(map(redaction.is_secret_name, ("--hf-token", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "apiKey")))
    assert not any(map(redaction.is_secret_name, ("--tokenizer", "--max-tokens", "pad_token", "--no-auth")))
