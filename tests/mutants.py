"""Check that the tests catch defects: change one line of the product at a time, and run tests.

    just mutants                              every mutant: its listed tests, then the whole default tier
    just mutants --fast                       every mutant, by its listed tests only
    just mutants --sample 30 --seed 7         30 of them, by their listed tests only; seed 8 has the next 30
    just mutants link-idle-border result_cache-lock  two of them
    just mutants --tier both result_cache-lock       one of them, with the tests of the slow tier as well
    just mutants --list                       names, files and changes

A mutant is a small defect: a flipped comparison, a bound that is off by one, swapped columns, a lock that is
not taken, an error that is ignored. `tests/mutants.toml` is the table of all of them. A mutant is killed when
a test fails because of it; one that survives is a defect that the tests would not notice.

Everything happens in copies of the working tree (tracked and new files, as they are now) in the temporary
folder, with virtual environments of their own that take tracekit from the copy and everything else from the
environment this runs in; the checkout stays as it is. Each copy has one mutant at a time. Tests run in a copy
without any mutant first: if one fails, no kill would mean anything, and nothing is counted. Property tests
try the same examples every time.

Exit codes: 0 all were killed; 1 some survived; 2 a mutant no longer applies (the text it replaces is not
exactly once in its file: update the table), or tests fail or cannot run without any mutant.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
TIERS = {"default": (), "both": ("-m", "")}
"""Options of pytest in addition to those of pyproject.toml."""
PACKAGES = ("tracekit", "tracekit.analyses", "tracekit.collectors", "tracekit.dashboards")
_COMPILED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_ALL_SKIPPED = re.compile(r"^\d+ skipped(?:, \d+ deselected)? in ", re.MULTILINE)
_SUMMARY = "short test summary info"
_PASSED, _NO_TESTS = 0, 5
_CANNOT_RUN = (3, 4)
"""pytest's exit codes for an internal error, and for tests that do not exist."""


class UnfitError(Exception):
    """Mutants cannot be judged."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One defect.

    Attributes:
        area: Which part of the product it is in.
        kind: What kind of mistake it is.
        file: The file, from the root of the repository.
        original: Text that is in the file exactly once.
        replacement: What takes its place.
        tests: Files or tests that are run first, the cheapest first.
    """

    name: str
    area: str
    kind: str
    file: str
    original: str
    replacement: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The text of the file with the defect.

        Raises:
            UnfitError: The original is not there, or not only once.
        """
        count = text.count(self.original)
        if count != 1 or self.original == self.replacement:
            raise UnfitError(f"{self.name} no longer applies: its original is {count} times in {self.file}")
        return text.replace(self.original, self.replacement)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        by: The first test that failed; empty where none did.
        seconds: How long its tests ran.
        skipped: Whether all its tests were skipped, as those that need a browser where there is none.
    """

    by: str
    seconds: float
    skipped: bool = False

    @property
    def survived(self) -> bool:
        """Whether tests ran and none failed."""
        return not self.by and not self.skipped


def read_table() -> list[Mutant]:
    """All mutants."""
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def chosen(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """The mutants of these names, all without names.

    Raises:
        UnfitError: There is none of a name.
    """
    if unknown := set(names) - {one.name for one in mutants}:
        raise UnfitError(f"there is no mutant {', '.join(sorted(unknown))}; --list names them")
    return [one for one in mutants if not names or one.name in names]


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Some of the mutants; consecutive seeds take turns through all of them.

    The order is a fixed shuffled one: that of the digests of their names.
    """
    shuffled = sorted(mutants, key=lambda one: sha256(one.name.encode()).digest())
    first = seed * count
    return [shuffled[(first + place) % len(shuffled)] for place in range(min(count, len(shuffled)))]


class Tree:
    """A copy of the working tree in which tests run."""

    def __init__(self, folder: Path) -> None:
        self.root, self._cache = folder / "checkout", folder / "cache"
        _copy_files(self.root)
        if _COMPILED.is_dir():  # compiling the scanner takes longer than most tests
            shutil.copytree(_COMPILED, self._cache / _COMPILED.name)
        shared = ROOT.parent / "shared"
        if shared.exists():
            (folder / "shared").symlink_to(shared.resolve())
        self._python = _environment(self.root)
        self._check_imports(folder)

    def _check_imports(self, elsewhere: Path) -> None:
        """Refuse to go on where a child process would import the checkout instead of the copy."""
        script = f"import sys, {', '.join(PACKAGES)}; print(*[sys.modules[x].__file__ for x in {PACKAGES}])"
        done = subprocess.run(
            [self._python, "-c", script], cwd=elsewhere, env=self._variables(), capture_output=True, text=True
        )
        found = done.stdout.split()
        if done.returncode or not all(Path(one).is_relative_to(self.root) for one in found):
            raise UnfitError(f"tracekit is not imported from the copy: {done.stderr or done.stdout}")

    def _variables(self) -> dict[str, str]:
        own = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}
        kept = {name: value for name, value in os.environ.items() if name not in own}
        # compiled code of mutants stays out of the user's cache; CI has property tests try fixed examples
        return {**kept, "XDG_CACHE_HOME": str(self._cache), "CI": "1"}

    def failures(self, tests: Sequence[str], *options: str) -> list[str] | None:
        """Run tests; returns those that failed, or how pytest ended where it does not say.

        None where all were skipped.

        Raises:
            UnfitError: There are no such tests, or pytest itself failed.
        """
        words = [str(self._python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
        with TemporaryFile() as output:  # not a pipe, which a process that a test leaves would keep open
            done = subprocess.run(
                words,
                cwd=self.root,
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            output.seek(0)
            reported = output.read().decode(errors="replace")
        self._end_leftovers()
        if done.returncode in (_PASSED, _NO_TESTS):
            return None if _ALL_SKIPPED.search(reported) else []
        if done.returncode in _CANNOT_RUN:
            raise UnfitError(f"pytest cannot run {' '.join(tests) or 'the tier'}:\n{reported[-2000:]}")
        return _FAILED.findall(reported.rpartition(_SUMMARY)[2]) or [f"pytest: code {done.returncode}"]

    def _end_leftovers(self) -> None:
        """End the processes of the copy that a test which failed half-way did not end."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.cmdline()[:1] == [str(self._python)]:
                    process.kill()

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Have the mutant's defect in the copy until the end."""
        file = self.root / mutant.file
        before = file.read_text(encoding="utf-8")
        try:
            _write(file, mutant.applied(before))
            yield
        finally:
            _write(file, before)

    def verdict(self, mutant: Mutant, tests: Sequence[str], *options: str) -> Verdict:
        """Run tests with a mutant until one fails."""
        began = time.monotonic()
        with self.changed(mutant):
            failed = self.failures(tests, "-x", *options)
        seconds = time.monotonic() - began
        return Verdict(by=failed[0] if failed else "", seconds=seconds, skipped=failed is None)


def _copy_files(target: Path) -> None:
    """Copy what git tracks or would track."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        source, place = ROOT / name, target / name
        if source.is_symlink() or source.is_file():  # it may be deleted and not committed
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place, follow_symlinks=False)


def _environment(root: Path) -> Path:
    """Make a virtual environment like this one, but with the copy as tracekit; returns its Python.

    Packages other than tracekit are found through a path entry; what an editable install consists of is
    copied with the paths changed.
    """
    folder = root / ".venv"
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib"))
    own = folder / packages.relative_to(sys.prefix)
    found = [one for one in sys.path if Path(one).name == packages.name]  # a path entry may name another
    (own / "packages.pth").write_text("\n".join([*found, ""]), encoding="utf-8")
    for file in packages.glob("__editable__*tracekit*"):
        text = file.read_text(encoding="utf-8")
        (own / file.name).write_text(text.replace(str(ROOT), str(root)), encoding="utf-8")
    for script in Path(sys.prefix, "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            content, first = script.read_bytes(), f"#!{sys.prefix}/".encode()
            if content.startswith(first):
                copied = folder / "bin" / script.name
                copied.write_bytes(content.replace(first, f"#!{folder}/".encode(), 1))
                copied.chmod(0o755)
    return folder / "bin" / "python"


def _write(file: Path, text: str) -> None:
    """Write a source; code compiled of the same size in the same second would be taken for its own."""
    file.write_text(text, encoding="utf-8")
    if file.suffix == ".py":
        Path(cache_from_source(str(file))).unlink(missing_ok=True)


def judge(
    mutants: Sequence[Mutant], *, tier: Sequence[str], workers: int, listed_only: bool, passed: bool = False
) -> dict[str, Verdict]:
    """Run the tests that should kill each mutant.

    Args:
        mutants: Which.
        tier: Options that choose the tests.
        workers: Mutants at a time, and processes that run all tests.
        listed_only: Whether a mutant that its listed tests do not kill has survived.
        passed: Whether the listed tests are known to pass without any mutant.

    Raises:
        UnfitError: A mutant does not apply, or tests fail without any.
    """
    with (
        TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder,
        ThreadPoolExecutor(workers) as threads,
    ):
        places = [Path(folder).resolve() / str(number) for number in range(min(workers, len(mutants)))]
        trees = list(threads.map(Tree, places))
        together = ("-n", str(workers), *tier)
        checked = mutants[:1] if passed else mutants  # those of one mutant tell whether a copy is fit at all
        _control(
            trees[0], sorted({test for one in checked for test in one.tests}), tier if passed else together
        )
        free: SimpleQueue[Tree] = SimpleQueue()
        for tree in trees:
            free.put(tree)

        def by_listed(one: Mutant) -> Verdict:
            tree = free.get()
            try:
                return tree.verdict(one, one.tests, *tier)
            finally:
                free.put(tree)

        verdicts = {}
        for one, verdict in zip(mutants, threads.map(by_listed, mutants), strict=True):
            verdicts[one.name] = verdict
            _say(one, verdict)
        left = [one for one in mutants if verdicts[one.name].survived and not listed_only]
        if left:
            print(f"{len(left)} to go, by all tests", flush=True)
            _control(trees[0], [], together)
        for one in left:
            verdicts[one.name] = trees[0].verdict(one, [], *together)
            _say(one, verdicts[one.name])
    return verdicts


def _control(tree: Tree, tests: Sequence[str], options: Sequence[str]) -> None:
    """Refuse to count kills where tests fail without any mutant."""
    began = time.monotonic()
    if failed := tree.failures(tests, *options):
        raise UnfitError("\n  ".join(["these tests fail without any mutant:", *failed]))
    print(f"without a mutant all tests pass ({time.monotonic() - began:.0f} s)", flush=True)


def _say(mutant: Mutant, verdict: Verdict) -> None:
    word = "ALIVE  " if verdict.survived else "skipped" if verdict.skipped else "killed "
    place = f"{mutant.name:28} {mutant.file:44}"
    print(f"{word} {verdict.seconds:6.1f} s  {place} {verdict.by}".rstrip(), flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="just mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("names", nargs="*", metavar="NAME", help="mutants to judge; all by default")
    add("--tier", choices=TIERS, default="default", help="which tests may kill them; default: default")
    add("-n", dest="workers", type=int, default=2, metavar="N", help="mutants at a time; default: 2")
    add("--fast", action="store_true", help="run only the tests that the table lists for each mutant")
    add("--sample", type=int, metavar="N", help="judge N of the mutants, with --fast")
    add("--seed", type=int, default=0, metavar="N", help="which sample: consecutive seeds take turns")
    add(
        "--passed",
        action="store_true",
        help="the default tier has just passed: run only the tests of one mutant without it",
    )
    add("--list", action="store_true", help="show the mutants and run nothing")
    return made


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    given = parser().parse_args(arguments)
    try:
        mutants = chosen(read_table(), given.names)
        if given.sample:
            mutants = sample(mutants, given.sample, given.seed)
        for one in mutants:
            one.applied((ROOT / one.file).read_text(encoding="utf-8"))
        if given.list:
            _list(mutants)
            return 0
        tier = TIERS[given.tier]
        verdicts = judge(
            mutants,
            tier=tier,
            workers=given.workers,
            listed_only=given.fast or bool(given.sample),
            passed=given.passed,
        )
    except (UnfitError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    killed = sum(bool(one.by) for one in verdicts.values())
    print(f"{killed} of {len(mutants)} killed")
    return int(any(one.survived for one in verdicts.values()))


def _list(mutants: Sequence[Mutant]) -> None:
    for one in mutants:
        print(f"{one.area}: {one.name} ({one.kind}), {one.file}")
        for sign, text in (("-", one.original), ("+", one.replacement)):
            print("\n".join(f"  {sign} {line}" for line in text.splitlines()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
