"""Group files, folders and standard input into jobs.

The ranks of a job may be files of one folder, or each in a folder of its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import structs

from tracekit import storage
from tracekit.errors import TracekitError, UnusableInputError, printable
from tracekit.ingest.jobs.capture_files import DETAILS, list_captures
from tracekit.ingest.jobs.ranks import TraceHeader, from_name, from_names, read_headers
from tracekit.ingest.jobs.sources import Job, Source, single_job, split_cycles
from tracekit.ingest.kineto.source import convert_errors, file_name, open_trace
from tracekit.ingest.nsys import is_nsys, report
from tracekit.runs.meta import Diagnostic, Level
from tracekit.storage import STDIN, Kind, Place, kind


class Plan(msgspec.Struct, frozen=True):
    """Jobs that can be imported, and errors of paths that cannot."""

    jobs: list[Job] = msgspec.field(default_factory=list)
    errors: list[TracekitError] = msgspec.field(default_factory=list)


def plan(paths: Sequence[Place]) -> list[Job]:
    """Group traces into jobs.

    Files with different ranks of one `distributedInfo` group are one job, and so is a folder; a rank that
    comes again starts another job (another profiled cycle of the same program).

    Raises:
        UnusableInputError: A path does not exist, or a folder holds no trace.
    """
    survey_ = survey(paths)
    if survey_.errors:
        raise survey_.errors[0]
    return survey_.jobs


def survey(paths: Sequence[Place]) -> Plan:
    """Group traces into jobs as `plan` does; collect the errors of unusable paths instead of raising."""
    result, single = Plan(), list[Place]()
    for path in paths:
        try:
            match kind(path):
                case Kind.STREAM:
                    result.jobs.append(_stream(path))
                case Kind.FOLDER if is_nsys(path):
                    single.append(path)
                case Kind.FOLDER:
                    result.jobs.extend(_read_jobs(path))
                case _:
                    single.append(path)
        except TracekitError as error:
            result.errors.append(error)
    headers = read_headers(single)
    result.errors.extend(header for header in headers if isinstance(header, TracekitError))
    result.jobs.extend(_group_by_job([header for header in headers if isinstance(header, TraceHeader)]))
    return structs.replace(result, jobs=_note_conflicts(result.jobs))


def _note_conflicts(jobs: list[Job]) -> list[Job]:
    """Note that traces claim one rank, unless each rank has as many, one for each cycle of the profiler."""
    notes: dict[int, list[Diagnostic]] = defaultdict(list)
    for world_size in {job.world_size for job in jobs if job.world_size}:
        sources = [source for job in jobs if job.world_size == world_size for source in job.sources]
        claims = _group_by(sources, lambda source: source.rank)
        fewest = min(map(len, claims.values())) if len(claims) == world_size else 1
        for rank, claiming in claims.items():
            if len(claiming) <= fewest:
                continue
            listed = ", ".join(f"{source.path.parent.name}/{file_name(source.path)}" for source in claiming)
            message = f"{listed} all say rank {rank} of {world_size}, so each is a run of its own"
            advice = "if they are of one job, a rank is wrong"
            notes[world_size].append(Diagnostic(Level.WARN, "rank_conflict", f"{message}; {advice}"))
    return [structs.replace(job, notes=(*job.notes, *notes[job.world_size])) for job in jobs]


def _stream(path: Place) -> Job:
    """Return the job of a stream, which is not examined as it can be read only once."""
    if path != STDIN and not path.name.isdigit():  # a name such as /dev/fd/63 is meaningless
        return single_job(path)
    return Job("stdin" if path == STDIN else "pipe", (Source(path),))


def _group_by_job(files: list[TraceHeader]) -> list[Job]:
    jobs: list[Job] = []
    groups: dict[object, list[TraceHeader]] = defaultdict(list)
    for trace in files:
        if trace.group is None:
            jobs += split_cycles(None, [Source(trace.path, trace.top.rank)])
        else:
            groups[trace.group].append(trace)
    return jobs + [job for traces in groups.values() for job in _jobs_of_ranks(None, traces)]


_TRACE_NAME = re.compile(r"\.json(\.gz)?$|\.pt\.trace[^/]*$")
_OTHER_LIMIT = 64 << 20  # most bytes of a JSON file that are read to distinguish it from a damaged trace

Item = TypeVar("Item")
Key = TypeVar("Key")


def _read_jobs(root: Place) -> list[Job]:
    """Return the jobs of the traces in a folder and its subfolders, in the order of their first trace.

    Raises:
        UnusableInputError: The folder has no trace.
    """
    headers, skipped = _read_folder(root)
    if not headers:
        reason = f": {next(iter(skipped.values())).message}" if skipped else ""
        message = f"{root} has no traces of torch.profiler or Nsight Systems{reason}"
        raise UnusableInputError(message, hint="give a folder of traces, or a trace")
    exports = [header for header in headers if header.is_nsys]
    headers = [header for header in headers if not header.is_nsys]
    groups = _group_by(headers, lambda trace: trace.group)
    ranked = [header for header in headers if header.top.rank is not None and header.group is None]
    jobs = [
        *(job for group, traces in groups.items() if group for job in _jobs_of_group(root, traces)),
        *(job for folder, traces in _group_by(ranked, _folder).items() for job in _jobs_in(folder, traces)),
        *_jobs_without_ranks(root, headers),
        *_jobs_of_exports(exports),
    ]
    return _attach_notes(sorted(jobs, key=lambda job: job.sources[0].path), skipped)


def _attach_notes(jobs: list[Job], skipped: dict[Place, Diagnostic]) -> list[Job]:
    """Attach the notes on skipped files to the jobs with the nearest files."""
    notes: dict[int, list[Diagnostic]] = defaultdict(list)
    for path, note in skipped.items():
        nearness = [
            max(
                (len({*path.parents} & {*source.path.parents}), path.parent == source.path.parent)
                for source in job.sources
            )
            for job in jobs
        ]
        for number, near in enumerate(nearness):
            if near == max(nearness):
                notes[number].append(note)
    return [structs.replace(job, notes=tuple(notes[number])) for number, job in enumerate(jobs)]


def _read_folder(root: Place) -> tuple[list[TraceHeader], dict[Place, Diagnostic]]:
    headers: list[TraceHeader] = []
    skipped: dict[Place, Diagnostic] = {}
    with convert_errors(root):
        paths = _candidates(root)
    for path, header in zip(paths, read_headers(paths), strict=True):
        if isinstance(header, TraceHeader):
            headers.append(header)
        elif _TRACE_NAME.search(path.name) and not _is_other_json(path):
            message = printable(header.message.replace(str(path), path.name))
            skipped[path] = Diagnostic(Level.WARN, "skipped_file", f"left out {file_name(path)}: {message}")
    return headers, skipped


def _candidates(root: Place) -> list[Place]:
    """Return the files that may be traces, and the folders of exported tables.

    A report with an export beside it is one recording. SQLite databases that are not exports are skipped, and
    so are traces of graph captures, unless there are no others.
    """
    paths = storage.inside(root, deep=True)
    folders = {path for path in paths if path.is_dir() and report.is_parquet_export(path)}
    rest = [path for path in paths if path.is_file() and folders.isdisjoint(path.parents)]
    captures = {capture for folder in {path.parent for path in rest} for capture in list_captures(folder)}
    rest = [path for path in rest if path.name != DETAILS]
    if not captures.issuperset(path for path in rest if _TRACE_NAME.search(path.name)):
        rest = [path for path in rest if path not in captures]
    duplicates = {report.redundant(path) for path in rest if report.is_report(path)}
    return [
        *sorted(folders),
        *(path for path in rest if path not in duplicates and not _is_other_database(path)),
    ]


def _is_other_database(path: Place) -> bool:
    try:
        if not report.is_sqlite(path):
            return False
    except UnusableInputError:
        return False
    from tracekit.ingest.nsys.reader import is_export  # loads sqlite3, which most folders do not need

    return not is_export(path)


def _jobs_of_exports(headers: list[TraceHeader]) -> Iterator[Job]:
    """Return the jobs of exports: one job per folder if each file name contains a different rank."""
    for folder, exports in _group_by(headers, _folder).items():
        ranks = [from_name(header.path.name) for header in exports]
        if len(exports) > 1 and None not in ranks and len(set(ranks)) == len(ranks):
            sources = [Source(header.path, rank) for header, rank in zip(exports, ranks, strict=True)]
            yield from split_cycles(folder.resolve().name, sources)
        else:
            yield from (single_job(header.path) for header in exports)


def _is_other_json(path: Place) -> bool:
    """Return whether a file is valid JSON but not a trace, so that it can be skipped."""
    try:
        with convert_errors(path), open_trace(path) as stream:
            msgspec.json.decode(stream.read(_OTHER_LIMIT).removeprefix(b"\xef\xbb\xbf"))
    except (UnusableInputError, msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _group_by(traces: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    sorted_out: dict[Key, list[Item]] = defaultdict(list)
    for trace in traces:
        sorted_out[key(trace)].append(trace)
    return sorted_out


def _folder(trace: TraceHeader) -> Place:
    return trace.path.parent


class _Bundle(msgspec.Struct, frozen=True):
    """Traces of one process group in a folder and its subfolders."""

    folder: Place
    traces: list[TraceHeader]

    @property
    def ranks(self) -> set[int | None]:
        return {trace.top.rank for trace in self.traces}


def _jobs_in(folder: Place, traces: list[TraceHeader]) -> list[Job]:
    """Return the jobs of traces that declare their ranks, named after their folder."""
    return _jobs_of_ranks(folder.resolve().name if len(traces) > 1 else None, traces)


def _jobs_of_ranks(name: str | None, traces: list[TraceHeader]) -> list[Job]:
    jobs = split_cycles(name, [Source(trace.path, trace.top.rank) for trace in traces])
    return [structs.replace(job, world_size=traces[0].top.world_size) for job in jobs]


def _jobs_of_group(root: Place, traces: list[TraceHeader]) -> Iterator[Job]:
    """Return the jobs of one process group, each in the deepest folder with all its ranks that exist."""
    waiting: dict[Place, list[_Bundle]] = defaultdict(list)
    for folder, members in _group_by(traces, _folder).items():
        waiting[folder].append(_Bundle(folder, members))
    while waiting:
        folder = max(waiting, key=lambda path: len(path.parts))
        bundles = waiting.pop(folder)
        pool = _merge(folder, bundles)
        if pool and folder != root and len(pool.ranks) < traces[0].top.world_size:
            waiting[folder.parent].append(pool)
            continue
        for bundle in [pool] if pool else bundles:
            yield from _jobs_in(bundle.folder, bundle.traces)


def _merge(folder: Place, bundles: list[_Bundle]) -> _Bundle | None:
    """Merge bundles; None if a rank is in two of them, as they are then different jobs."""
    if len(bundles) == 1:
        return bundles[0]
    if len(set().union(*(bundle.ranks for bundle in bundles))) < sum(len(b.ranks) for b in bundles):
        return None
    return _Bundle(folder, [trace for bundle in bundles for trace in bundle.traces])


def _jobs_without_ranks(root: Place, headers: list[TraceHeader]) -> Iterator[Job]:
    """Return the jobs of traces without a rank: one per folder, or one for sibling folders of ranks."""
    nested: dict[Place, list[Source]] = defaultdict(list)
    for folder, traces in _group_by((trace for trace in headers if trace.top.rank is None), _folder).items():
        paths = [trace.path for trace in traces]
        rank = from_name(folder.name) if folder != root else None
        if len(paths) > 1:
            ranked, others = _assign_ranks(paths)
            yield from split_cycles(folder.resolve().name, ranked)
            yield from (single_job(path) for path in others)
        elif rank is not None:
            nested[folder.parent].append(Source(paths[0], rank))
        else:
            yield single_job(paths[0])
    for folder, sources in nested.items():
        if 1 < len(sources) == len({source.rank for source in sources}):
            yield from split_cycles(folder.resolve().name, sources)
        else:
            yield from (single_job(source.path) for source in sources)


def _assign_ranks(paths: list[Place]) -> tuple[list[Source], list[Place]]:
    """Assign ranks from file names, else in the order of the names; return the files of other processes too.

    If several names have different ranks, a file without one is of another process, such as a coordinator.
    """
    ranks = from_names([path.name for path in paths])
    named = [rank for rank in ranks if rank is not None]
    if len(named) == len(paths) or len(set(named)) > 1:
        pairs = [*zip(paths, ranks, strict=True)]
        sources = [Source(path, rank) for path, rank in pairs if rank is not None]
        return sources, [path for path, rank in pairs if rank is None]
    return [Source(path, number, assumed=True) for number, path in enumerate(paths)], []
