from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs import make_meta
from tracekit.runs import scrubbing
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
    ],
)
def test_a_secret_in_a_command_is_hidden(words: list[str]) -> None:
    reported = scrubbing.words(["python", "train.py", *words, "--steps", "5"])
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
    ],
)
def test_what_has_the_shape_of_a_secret_is_hidden_wherever_it_stands(secret: str) -> None:
    for text in (secret, f"kernel<{secret}>", f"login with {secret}, then"):
        assert scrubbing.text(text) == text.replace(secret, scrubbing.HIDDEN)


@pytest.mark.parametrize(
    "words",
    [
        ["--tokenizer", "gpt2", "--max-tokens", "512", "--pad-token", "<pad>", "--num_tokens=4"],
        ["--eos_token=</s>", "--key", "value", "--keys", "a", "--pass", "2", "--author", "ann"],
        ["void at::native::kernel<float, std::array<char*, 3ul>>(int, float)", "ampere_sgemm_128x64_tn"],
        ["aten::embedding", "Sequence number: 123456", "task-1_2", "https://example.org/a@b?c=d"],
        ["4d9c1f" * 6 + "abcd"],
    ],
)
def test_what_is_no_secret_stays(words: list[str]) -> None:
    assert scrubbing.words(words) == words


def test_a_persons_folder_is_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/ann")
    reported = scrubbing.texts(
        [
            "/data/people/ann/train.py(12): forward",
            "/data/people/annabel/x",
            "/home/bob/x.py;/Users/bob/y.py",
            r"C:\Users\bob\x.py and C:\\Users\\bob\\y.py",
            "/mnt/home/bob",
            "/data/people/ann",
        ]
    )
    assert reported == [
        "~/train.py(12): forward",
        "/data/people/annabel/x",
        "~/x.py;~/y.py",
        r"~\x.py and ~\\y.py",
        "/mnt/home/bob",
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
    reported = scrubbing.scrubbed(meta)
    text = repr(reported)
    for gone in (SECRET, HF, "gpu-box", "bob"):
        assert gone not in text
    assert (reported.run_id, reported.git and reported.git.sha) == (meta.run_id, "a" * 40)
    assert scrubbing.scrubbed(reported) == reported


def test_the_name_of_a_trace_does_not_tell_the_machine() -> None:
    name = "gpu-box.lan_4711.1763694900000000000.pt.trace.json.gz"
    assert scrubbing.trace_name(name) == "trace_4711.1763694900000000000.pt.trace.json.gz"
    assert scrubbing.text(f"left out {name}: damaged") == f"left out {scrubbing.trace_name(name)}: damaged"


def test_json_stays_json() -> None:
    text = json.dumps({"token": 123456, "password": SECRET, "url": f"http://u:{SECRET}@h/x", "steps": [1.5]})
    reported = json.loads(scrubbing.text(text))
    assert reported == {"token": 123456, "password": "***", "url": "http://***@h/x", "steps": [1.5]}


@given(st.lists(st.text(max_size=60) | st.sampled_from([f"TOKEN={SECRET}", HF, "/home/ann/x", "aten::mm"])))
def test_many_texts_at_once_are_told_as_each_alone(values: list[str]) -> None:
    assert scrubbing.texts(values) == [scrubbing.text(value) for value in values]


@pytest.mark.parametrize("piece", ["key", "a", "a:", "token=", "_1", "://", "/home/", "eyJ", "1.", "'=:"])
def test_text_of_any_length_is_read_once(piece: str) -> None:
    long = piece * 40_000 + "://token=.pt.trace.json/home/" + piece * 40_000
    assert isinstance(scrubbing.text(long), str)  # quadratic time would end in the timeout


@given(st.text(max_size=80))
def test_scrubbing_twice_changes_nothing_more(value: str) -> None:
    once = scrubbing.text(value)
    assert scrubbing.text(once) == once


def test_a_home_at_the_root_takes_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")
    assert scrubbing.text("/usr/lib/x") == "/usr/lib/x"
    assert not re.search("~", scrubbing.text(str(Path("/opt/x"))))
