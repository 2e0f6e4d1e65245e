from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.traces import kernels_text
from tracekit.cli import lazy_click as click
from tracekit.cli import main
from tracekit.errors import CollectionError, TracekitError

if TYPE_CHECKING:
    from pathlib import Path

HINT = "rerun with `tracekit --debug` for a traceback"


def failing(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        """Fail."""
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (TracekitError("no file x", hint="try y"), 2, "tracekit: no file x; try y\n"),
        (CollectionError("the program failed"), 5, "tracekit: the program failed\n"),
        (FileNotFoundError(2, "", "/gone"), 2, f"tracekit: /gone: No such file or directory; {HINT}\n"),
        (OSError("failed"), 2, f"tracekit: failed; {HINT}\n"),
        (KeyboardInterrupt(), 130, "tracekit: interrupted; unfinished results are not saved\n"),
    ],
)
def test_an_expected_failure_is_one_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    monkeypatch.setattr(main.cli, "get_command", lambda *_: failing(error))
    assert main.run(["fail"]) == code
    done = capsys.readouterr()
    assert (done.out, done.err.removeprefix("\n")) == ("", line)  # click ends the line of ^C


def test_debug_adds_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main.cli, "get_command", lambda *_: failing(TracekitError("gone")))
    assert main.run(["--debug", "fail"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_command_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["nope"]) == 2
    assert "nope" in capsys.readouterr().err


def test_main_exits_with_the_code() -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["--version"])
    assert caught.value.code == 0


def test_a_closed_standard_output_ends_quietly(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(kernels_text(5))
    code = "from tracekit.cli.main import main; main()"
    script = f'"$0" -c "{code}" import "$1" --store "$2" >&- && "$0" -c "{code}" runs --store "$2" >&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, trace, tmp_path / "store"], stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
