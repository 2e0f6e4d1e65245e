"""Measure which lines and branches of the collectors the tests run, also inside child processes.

    just coverage-collectors                         the default tier of the tests that record
    just coverage-collectors tests/unit/collectors   only these tests
    just coverage-collectors -- tests/unit/collectors -m ""   with options of pytest: both tiers

Most of `collectors` and `tracekit/recording` runs in processes that the tests start: guards, measured
workloads, recorded programs. Coverage attaches to every Python of a copy of the working tree. Guards run
without site packages, so in the copy a script that starts coverage runs them.

Exit codes: 0 at least `LEAST` percent; 1 less, or a test failed; 2 the tests cannot run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import coverage

from tests.mutants import Tree, UnfitError

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST = 95
TESTS = (
    *("tests/unit/collectors", "tests/unit/recording", "tests/unit/cli/test_own_program.py"),
    *(
        f"tests/integration/test_{name}.py"
        for name in (
            *("collect", "compile_artifacts", "nsys", "nsys_collect", "nsys_program"),
            *("program", "program_ended", "program_steps", "record", "unprofiled"),
        )
    ),
)
"""Default tests: those of the default tier that record, without further variants of the same."""
_SAVE = "sys.modules['coverage'].Coverage.current().save(); "
CHANGES = {
    "collectors/children.py": ("str(Path(script))", "{script!r}, str(Path(script))"),
    **{
        file: (kill, _SAVE + kill)
        for file, kill in (
            ("collectors/guard.py", "os.kill(os.getpid(), -code)"),
            ("tracekit/recording/agent/agent.py", "os.kill(os.getpid(), number)"),
        )
    },
}
"""Changes of the copy: a script runs the guards, and processes save before they end by a signal."""
START = """import runpy, sys
sys.path.append({packages!r})
import coverage
coverage.process_startup()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
CONFIGURATION = """[run]
branch = true
parallel = true
data_file = {folder}/data/coverage
source =
    {root}/collectors
    {root}/tracekit/recording
patch = subprocess, _exit, execv
disable_warnings = no-data-collected, module-not-measured, module-not-imported, couldnt-parse

[report]
show_missing = true
exclude_also =
    if TYPE_CHECKING:
    @overload
    \\.\\.\\.$
"""


def measure(tests: Sequence[str]) -> int:
    """Run tests and print the table; returns the exit code."""
    with TemporaryDirectory(prefix="coverage-", ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        tree = Tree(home)
        script = home / "start.py"
        script.write_text(START.format(packages=str(Path(coverage.__file__).parents[1])))
        for name, (original, changed) in CHANGES.items():
            _change(tree.root / name, original, changed.format(script=str(script)))
        own = next(tree.root.glob(".venv/lib/*/site-packages"))
        (own / "start_coverage.pth").write_text("import coverage; coverage.process_startup()\n")
        (home / "data").mkdir()
        settings = home / "coverage.ini"
        settings.write_text(CONFIGURATION.format(folder=home, root=tree.root))
        python, rc = tree.root / ".venv" / "bin" / "python", f"--rcfile={settings}"
        run = [
            python,
            "-m",
            "coverage",
            "run",
            rc,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            "--cpu-limit=0",
        ]
        failed = subprocess.run([*run, *tests], cwd=tree.root, stdin=subprocess.DEVNULL).returncode
        for words in (["combine", "-q", rc], ["report", rc, f"--fail-under={LEAST}"]):
            done = subprocess.run([python, "-m", "coverage", *words], cwd=tree.root)
        return 1 if failed or done.returncode else 0


def _change(file: Path, original: str, changed: str) -> None:
    text = file.read_text(encoding="utf-8")
    if text.count(original) != 1:
        raise UnfitError(f"{original} is not once in {file.name}")
    file.write_text(text.replace(original, changed), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="just coverage-collectors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "tests", nargs="*", default=list(TESTS), help="tests to run, and options of pytest after --"
    )
    try:
        return measure(parser.parse_args(arguments).tests)
    except (UnfitError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
