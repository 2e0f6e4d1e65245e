"""Which traces belong together: files, folders and standard input become jobs, each one run of some ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.errors import UnusableInputError
from tracekit.ingest.kineto.reader import peek
from tracekit.ingest.kineto.source import STDIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tracekit.ingest.kineto.toplevel import TopLevel

_RANK_IN_NAME = re.compile(r"(?:rank|worker)[_-]?(\d+)", re.IGNORECASE)
_SUFFIX = re.compile(r"(\.pt)?(\.trace)?(\.json)?(\.gz)?$")


@dataclass(frozen=True)
class Source:
    """One trace of a job.

    Attributes:
        rank: Its rank, as declared in the trace, told by its name, or counted; None when it is alone and says
            nothing before its events.
        assumed: Whether the rank was counted, for want of anything better.
    """

    path: Path
    rank: int | None = None
    assumed: bool = False

    @property
    def size(self) -> int:
        """Bytes of the file; 0 for standard input."""
        return 0 if self.path == STDIN else self.path.stat().st_size

    @property
    def identity(self) -> dict[str, Any]:
        """What tells the file apart without reading it: its name, size and time of change."""
        if self.path == STDIN:
            return {"name": "stdin"}
        stat = self.path.stat()
        return {"name": self.path.name, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}


@dataclass(frozen=True)
class Job:
    """Traces that become one run."""

    name: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class _Found:
    path: Path
    top: TopLevel

    @property
    def rank(self) -> int | None:
        return self.top.distributed.rank if self.top.distributed else None

    @property
    def group(self) -> tuple[object, ...] | None:
        """What the ranks of one job have in common; None for a trace of a single process."""
        info = self.top.distributed
        if info is None or info.rank is None or (info.world_size or 0) < 2:
            return None
        return info.world_size, info.backend, tuple(device.name for device in self.top.devices)


def plan(paths: Sequence[Path]) -> list[Job]:
    """Group traces into jobs.

    Files with different ranks of one `distributedInfo` group are one job, and so is a folder; a rank that
    comes again starts another job (another profiled cycle of the same program).

    Raises:
        UnusableInputError: A path does not exist, or a folder holds no trace.
    """
    jobs: list[Job] = []
    files: list[_Found] = []
    for path in paths:
        if path == STDIN:
            jobs.append(Job("stdin", (Source(path),)))
        elif path.is_dir():
            jobs += _folder(path)
        else:
            files.append(_Found(path, peek(path)))
    return jobs + _grouped(files)


def _folder(path: Path) -> list[Job]:
    found = [trace for file in sorted(path.rglob("*")) if file.is_file() for trace in _traces(file)]
    if not found:
        raise UnusableInputError(
            f"{path} holds no Kineto trace", hint="name a folder of traces, or the trace"
        )
    by_folder: dict[Path, list[_Found]] = defaultdict(list)
    for trace in found:
        by_folder[trace.path.parent].append(trace)
    return [job for folder, traces in by_folder.items() for job in _one_folder(folder, traces)]


def _traces(file: Path) -> Iterable[_Found]:
    try:
        yield _Found(file, peek(file))
    except UnusableInputError:
        return  # other files may lie beside traces


def _one_folder(folder: Path, traces: list[_Found]) -> list[Job]:
    if len(traces) == 1:
        return _grouped(traces)
    declared = [trace for trace in traces if trace.rank is not None]
    silent = [trace for trace in traces if trace.rank is None]
    groups: dict[object, list[Source]] = defaultdict(list)
    for trace in declared:
        groups[trace.group].append(Source(trace.path, trace.rank))
    jobs = [job for sources in groups.values() for job in _cycles(folder.resolve().name, sources)]
    return jobs + _cycles(folder.resolve().name, _counted([trace.path for trace in silent]))


def _counted(paths: list[Path]) -> list[Source]:
    """Ranks by file name where every name has one, else by the order of names."""
    named = [_RANK_IN_NAME.search(path.name) for path in paths]
    if all(named):
        return [Source(path, int(match[1])) for path, match in zip(paths, named, strict=True) if match]
    return [Source(path, number, assumed=True) for number, path in enumerate(paths)]


def _grouped(files: list[_Found]) -> list[Job]:
    jobs: list[Job] = []
    groups: dict[object, list[Source]] = defaultdict(list)
    for trace in files:
        source = Source(trace.path, trace.rank)
        if trace.group is None:
            jobs.append(Job(_stem(trace.path), (source,)))
        else:
            groups[trace.group].append(source)
    return jobs + [job for sources in groups.values() for job in _cycles(None, sources)]


def _cycles(name: str | None, sources: list[Source]) -> list[Job]:
    """Split sources so that a rank occurs once in each job: its n-th trace goes to the n-th job."""
    cycles: list[dict[int | None, Source]] = []
    for source in sorted(sources, key=lambda source: source.path.name):
        free = next((cycle for cycle in cycles if source.rank not in cycle), None)
        if free is None:
            cycles.append(free := {})
        free[source.rank] = source
    return [_job(name, tuple(cycle.values())) for cycle in cycles]


def _job(name: str | None, sources: tuple[Source, ...]) -> Job:
    ordered = tuple(sorted(sources, key=lambda source: (source.rank or 0, source.path.name)))
    return Job(name or _stem(ordered[0].path), ordered)


def _stem(path: Path) -> str:
    return _SUFFIX.sub("", path.name) or "trace"
