from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("anaylze", "unknown command 'anaylze'; did you mean analyze? Try 'tracekit --help'."),
        ("find", "unknown command 'find'; did you mean findings? Try 'tracekit --help'."),
        ("zzz", "unknown command 'zzz'. Try 'tracekit --help'."),
        ("suite reprot", "unknown command 'reprot'; did you mean report? Try 'tracekit suite --help'."),
        ("runs --fromat csv", "unknown option --fromat; did you mean --format? Try 'tracekit runs --help'."),
        ("runs --zzz", "unknown option --zzz. Try 'tracekit runs --help'."),
        ("bisect --rep 3", "unknown option --rep; did you mean --repeat? Try 'tracekit bisect --help'."),
        (
            "show --format jsno",
            "Invalid value for '--format': unknown value 'jsno'; did you mean json? "
            "Try 'tracekit show --help'.",
        ),
        (
            "check --against x --metric tsep_time",
            "Invalid value for '--metric': unknown metric 'tsep_time'; did you mean step_time? "
            "Try 'tracekit check --help'.",
        ),
        ("sweep", "Give a --workload to sweep, or a sweep to --show. Try 'tracekit sweep --help'."),
        ("analyze latest opps", "unknown analysis 'opps'; did you mean ops?"),
        ("analyze kernel", "no run, label or file matches 'kernel'; did you mean kernels?"),
        ("collect --workload resnet5", "unknown workload 'resnet5'; did you mean resnet50?"),
        (
            "query 'SELECT * FROM step'",
            "unknown table 'step'; did you mean steps? (`tracekit query --tables`)",
        ),
    ],
)
def test_a_wrong_name_exits_2_and_suggests_the_nearest(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert main.run(shlex.split(words)) == 2
    assert capsys.readouterr().err == f"tracekit: {said}\n"


def test_a_usage_error_of_a_command_points_to_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main.cli, "get_command", lambda *_: failing(click.UsageError("Give a run.")))
    assert main.run(["fail"]) == 2
    assert capsys.readouterr().err == "tracekit: Give a run. Try 'tracekit fail --help'.\n"


@pytest.mark.parametrize("asked", [[], ["always"]])
def test_warnings_of_python_are_shown_only_where_asked_for(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = RuntimeWarning("invalid value encountered in divide")
    monkeypatch.setattr(main, "run", lambda _: warnings.warn(warning, stacklevel=1))
    monkeypatch.setattr(sys, "warnoptions", asked)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(SystemExit):
            main.main(["show"])
    assert [one.message for one in shown] == [warning] * len(asked)


ALIASES = {
    "ab": {"k": ("--repeat", "-k"), "max_k": ("--max-repeat", "--max-k")},
    "bisect": {"reps": ("--repeat", "--reps"), "fresh": ("--restart", "--fresh")},
    "suite run": {"only": ("--workload", "--only")},
    "import": {"steps": ("--step-name", "--steps")},
}


@pytest.mark.parametrize("words", ALIASES)
def test_old_spellings_are_accepted_and_not_listed(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*words.split(), "--help"]) == 0
    listed = set(re.findall(r"--?[a-z-]+", capsys.readouterr().out))
    context = main.cli.make_context("tracekit", words.split(), resilient_parsing=True)
    command: Any = main.cli
    for word in words.split():
        command = command.get_command(context, word)
    for name, (new, old) in ALIASES[words].items():
        assert new in listed
        assert old not in listed
        for spelling in (new, old):
            option = next(one for one in command.params if one.name == name)
            value = [] if option.is_flag else ["7"]
            found = command.make_context(words, [spelling, *value], resilient_parsing=True)
            assert found.params[name] in {True, 7, "7", ("7",)}


@pytest.mark.parametrize("words", [["--quiet", "gc"], ["gc", "-q"], ["gc"]], ids=" ".join)
def test_quiet_leaves_out_hints(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*words, "--store", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ("tracekit: nothing to delete\n" if words == ["gc"] else "")


def test_main_exits_with_the_code() -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["--version"])
    assert caught.value.code == 0


def test_child_processes_have_the_null_device_for_a_closed_stream() -> None:
    child = (
        "import os, sys; print(os.path.sameopenfile(1, os.open(os.devnull, os.O_RDONLY)), file=sys.stderr)"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    script = f'"$0" -c "from tracekit.cli.main import _open_streams; _open_streams(); {code}" >&-'
    done = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, check=False)
    assert done.stderr == b"True\n"


def test_a_closed_standard_output_ends_quietly(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(kernels_text(5))
    code = "from tracekit.cli.main import main; main()"
    script = f'"$0" -c "{code}" import "$1" --store "$2" >&- && "$0" -c "{code}" runs --store "$2" >&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, trace, tmp_path / "store"], stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
