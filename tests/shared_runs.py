"""Runs that are imported once for all tests of a process, and that no test may write to."""

from __future__ import annotations

import fcntl
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samples.simulator import trace
from tracekit import analysis
from tracekit.analysis.cache import ResultCache
from tracekit.analysis.host_verdict import HostPart
from tracekit.ingest.importer import import_traces
from tracekit.runs import meta
from tracekit.runs.run import Run
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from samples.simulator import Program
    from tracekit.analysis import Result

TRAINING = Path(__file__).parents[1] / "samples" / "simulated" / "training.json.gz"
"""The trace of a simulated training, which has most kinds of events."""
State = dict[Path, tuple[int, int]]
"""Size and time of the last change of files."""
_RESULTS: dict[tuple[Path | str, ...], Result] = {}
"""Latest results of analyses and comparisons by the folders and peaks of their runs, and by name."""
MAX_RESULTS = 200


def analyze(run: Run, name: str) -> Result:
    """The result of an analysis, computed once for each run: tests must change neither of them."""
    return _remember((run.path, repr(run.peaks), name), lambda: analysis.analyze(run, name))


def compare(base: Run, head: Run, name: str) -> Result:
    """The result of a comparison, computed once for each pair of runs: tests must change none of them."""
    peaks = repr((base.peaks, head.peaks))
    return _remember((base.path, head.path, peaks, name), lambda: analysis.compare(base, head, name))


def check_host_parts(run: Run) -> None:
    """The parts of the time of the driving threads sum to each profiled step, to the nanosecond."""
    steps = analyze(run, "host_breakdown").tables.get("per_step")
    if steps is not None:
        parts = steps[[f"{part}_ns" for part in HostPart]]
        assert (parts.sum(axis=1) == steps["step_ns"]).all()
        assert (parts >= 0).all(axis=None)


def _remember(key: tuple[Path | str, ...], compute: Callable[[], Result]) -> Result:
    _RESULTS[key] = result = _RESULTS.pop(key, None) or compute()
    if len(_RESULTS) > MAX_RESULTS:
        del _RESULTS[next(iter(_RESULTS))]
    return result


class SharedRuns:
    """Imports each trace once.

    Example:
        run = shared_runs.of(TRACES / name)
        run = shared_runs.simulated(training())
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[tuple[Hashable, ...], Run] = {}
        self._states: dict[Path, State] = {}

    def of(self, *paths: Path) -> Run:
        """The run of these files or folders, imported when it is first asked for."""
        return self._runs.get(paths) or self._import(paths, paths)

    def simulated(self, *programs: Program) -> Run:
        """The run of these programs, one for each rank; programs with equal traces are one run."""
        contents = tuple(trace(program) for program in programs)
        return self._runs.get(contents) or self._import(contents, self._written(contents))

    def _written(self, contents: tuple[bytes, ...]) -> tuple[Path, ...]:
        folder = self._store.path.parent / "simulated" / str(len(self._runs))
        folder.mkdir(parents=True)
        paths = tuple(folder / f"rank{number}.json" for number in range(len(contents)))
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return paths

    def _import(self, key: tuple[Hashable, ...], paths: tuple[Path, ...]) -> Run:
        (run,) = import_traces(self._store, list(paths))
        for file in run.path.rglob("*"):
            if file.is_file():
                file.chmod(0o444)
        self._runs[key], self._states[run.path] = run, _state(run.path)
        return run

    def changed(self) -> list[str]:
        """Files of shared runs that were added, removed or written to since their import."""
        differing = [before.items() ^ _state(folder).items() for folder, before in self._states.items()]
        return sorted({str(file) for items in differing for file, _ in items})


def make_analyzed_store(folder: Path) -> Store:
    """A store with a run whose results are in its cache; the first process makes it."""
    place = folder / "analyzed"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            draft = Store(place.with_suffix(".draft"))
            (run,) = import_traces(draft, [TRAINING])
            results = ResultCache(draft)
            for known in analysis.available():
                results.analyze(run, known.name)
            draft.path.rename(place)
    return Store(place)


def copy_of(run: Run, folder: Path, **changes: Any) -> Run:
    """A copy of a shared run, in a new folder, that a test may write to; with changes to its metadata."""
    shutil.copytree(run.path, folder, copy_function=shutil.copyfile)
    if changes:
        meta.write(folder, replace(run.meta, **changes))
    return Run(folder)


def _state(folder: Path) -> State:
    """Root writes to read-only files as well, so modes alone guard nothing."""
    stats = {file: file.stat() for file in folder.rglob("*") if file.is_file()}
    return {file: (stat.st_size, stat.st_mtime_ns) for file, stat in stats.items()}
