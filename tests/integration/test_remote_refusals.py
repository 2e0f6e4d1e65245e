"""Object storage that refuses: one line that says what, where and what to do, and exit code 2."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.traces import kernels_text
from tracekit.cli.main import run as tracekit
from tracekit.storage import filesystems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.object_storage import Server

COMMANDS = [
    ["runs", "--store", "s3://bucket/runs"],
    ["show", "--store", "s3://bucket/runs"],
    ["analyze", "latest", "--store", "s3://bucket/runs"],
    ["rm", "latest", "--yes", "--store", "s3://bucket/runs"],
    ["show", "s3://bucket/runs/one", "--store", "STORE"],
    ["import", "TRACE", "--store", "s3://bucket/runs"],
    ["import", "s3://bucket/trace.json", "--store", "STORE"],
    ["import", "s3://bucket/*.json", "--store", "STORE"],
]


@pytest.fixture
def closed() -> Iterator[str]:
    """An endpoint where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def said(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that cannot do what it was asked for."""
    trace = tmp_path / "trace.json"
    trace.write_text(kernels_text())
    places = {"STORE": str(tmp_path / "store"), "TRACE": str(trace)}
    assert tracekit([places.get(word, word) for word in command]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "very-secret" not in err
    assert "; " in err
    assert len(err) < 300
    return err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nobody_answers(
    command: list[str],
    closed: str,
    s3: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", closed)
    if command != COMMANDS[0]:
        monkeypatch.setattr(filesystems, "ATTEMPTS", 1)  # the client pauses before it tries again
    assert "the endpoint cannot be reached" in said(command, tmp_path, capsys)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_credentials_are_wrong(
    command: list[str],
    s3: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from moto import settings

    monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)  # from now on the server looks at them
    found = said(command, tmp_path, capsys)
    assert "access is denied" in found or "the access key is unknown" in found


@pytest.mark.parametrize(
    ("command", "message"),
    list(
        zip(
            COMMANDS,
            [
                *["the bucket does not exist"] * 4,
                "no run, label or file",
                "there is no such bucket",
                "No such file",
                "nothing matches",
            ],
            strict=True,
        )
    ),
    ids=map(" ".join, COMMANDS),
)
def test_there_is_no_such_bucket(
    command: list[str], message: str, s3: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = [word.replace("s3://bucket", "s3://elsewhere") for word in command]
    found = said(elsewhere, tmp_path, capsys)
    assert "s3://elsewhere" in found
    assert message in found


def test_the_endpoint_may_stand_in_the_address(
    s3: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", closed)
    assert (
        tracekit(["runs", "--store", f"s3://bucket/runs?endpoint_override={s3.endpoint}&region=us-east-1"])
        == 0
    )
    assert "no runs in s3://bucket/runs" in capsys.readouterr().err


def test_an_address_with_credentials_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    for address in ("s3://someone:very-secret@bucket/runs", "s3://bucket/runs?secret_key=very-secret"):
        assert tracekit(["runs", "--store", address]) == 2
        assert tracekit(["import", address]) == 2
        out, err = capsys.readouterr()
        assert "very-secret" not in out + err
        assert err.count("\n") == 2
