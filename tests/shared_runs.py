"""Runs that are imported once for all tests of a process, and that no test may write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.ingest import import_traces

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.run import Run
    from tracekit.store import Store

State = dict["Path", tuple[int, int]]
"""Size and time of the last change of files."""


class SharedRuns:
    """Imports each trace once.

    Example:
        run = shared_runs.of(TRACES / name)
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[tuple[Path, ...], Run] = {}
        self._states: dict[Path, State] = {}

    def of(self, *paths: Path) -> Run:
        """The run of these files or folders, imported when it is first asked for."""
        if paths not in self._runs:
            (run,) = import_traces(self._store, list(paths))
            for file in run.path.rglob("*"):
                if file.is_file():
                    file.chmod(0o444)
            self._runs[paths], self._states[run.path] = run, _state(run.path)
        return self._runs[paths]

    def changed(self) -> list[str]:
        """Files of shared runs that were added, removed or written to since their import."""
        return [
            str(file)
            for folder, before in self._states.items()
            for file, _ in before.items() ^ _state(folder).items()
        ]


def _state(folder: Path) -> State:
    """Root writes to read-only files as well, so modes alone guard nothing."""
    stats = {file: file.stat() for file in folder.rglob("*") if file.is_file()}
    return {file: (stat.st_size, stat.st_mtime_ns) for file, stat in stats.items()}
