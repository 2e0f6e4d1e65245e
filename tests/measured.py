"""Measured Python programs that run in this process, for tests of what is decided from their values."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.experiments import process
from tracekit.experiments.process import Finished, ProgramError
from tracekit.runs.meta import CpuLoad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_run_process = process.run


def run_here(command: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> Finished:
    """Do what `process.run` does, for a Python script without a process."""
    scripts = [place for place, word in enumerate(command) if word.endswith(".py")]
    if not scripts:
        return _run_process(command, folder=folder, environment=environment)
    script, output, modules = command[scripts[0]], StringIO(), set(sys.modules)
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(output):
        patched.chdir(folder)
        patched.setattr(sys, "argv", list(command[scripts[0] :]))
        patched.syspath_prepend(str(Path(folder, script).parent))
        patched.setattr(sys, "dont_write_bytecode", True)
        try:
            exec(compile(Path(script).read_bytes(), script, "exec"), {"__name__": "__main__"})  # noqa: S102
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
            raise ProgramError(f"the program failed with exit code {code}", tail=str(error)) from error
        finally:
            for name in set(sys.modules) - modules:  # those of this commit
                del sys.modules[name]
    load = CpuLoad(rank=0, cores=1, wall_ns=1_000_000, cpu_ns=1_000_000)
    return Finished(wall_ns=1_000_000, peak_bytes=1 << 20, output=output.getvalue(), load=load)
