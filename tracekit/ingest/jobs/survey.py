"""Group files, folders and standard input into jobs.

The ranks of a job may be files of one folder, or each in a folder of its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import structs

from tracekit import storage
from tracekit.errors import TracekitError, UnusableInputError, printable
from tracekit.ingest.jobs.ranks import TraceHeader, from_name, from_names, read_headers
from tracekit.ingest.jobs.sources import DETAILS, Job, Source, list_captures, single_job, split_cycles
from tracekit.ingest.kineto.events import UNREADABLE
from tracekit.ingest.kineto.source import NOT_A_TRACE, convert_errors, file_name, open_trace
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
                    result.jobs.extend(_jobs_of(path, *_read_folder(path)))
                case Kind.FILE if (listed := _read_manifest(path)) is not None:
                    result.jobs.extend(_jobs_of_manifest(path, listed))
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
    notes: dict[object, list[Diagnostic]] = defaultdict(list)
    for key, members in _group_by(jobs, _place_of_ranks).items():
        sources = [source for job in members for source in job.sources]
        claims = _group_by(
            (source for source in sources if source.rank is not None), lambda source: source.rank
        )
        world_size = members[0].world_size
        is_whole = len(claims) == world_size or not world_size
        fewest = min(map(len, claims.values()), default=0) if is_whole else 1
        for rank, claiming in claims.items():
            if len(claiming) <= fewest:
                continue
            listed = ", ".join(f"{source.path.parent.name}/{file_name(source.path)}" for source in claiming)
            of_all = f" of {world_size}" * bool(world_size)
            message = f"{listed} all say rank {rank}{of_all}, so each is a run of its own"
            advice = "if they are of one job, a rank is wrong"
            notes[key].append(Diagnostic(Level.WARN, "rank_conflict", f"{message}; {advice}"))
    return [structs.replace(job, notes=(*job.notes, *notes[_place_of_ranks(job)])) for job in jobs]


def _place_of_ranks(job: Job) -> object:
    """Return where two traces of one rank contradict each other: in jobs of one size, else in a folder."""
    return job.world_size or job.sources[0].path.parent


def _stream(path: Place) -> Job:
    """Return the job of a stream, which is not examined as it can be read only once."""
    if path != STDIN and not path.name.isdigit():  # a name such as /dev/fd/63 is meaningless
        return single_job(path)
    return Job("stdin" if path == STDIN else "pipe", (Source(path),))


def _group_by_job(files: list[TraceHeader]) -> list[Job]:
    groups = _group_by(files, lambda trace: trace.group)
    alone = _group_by(groups.pop(None, []), lambda trace: (trace.is_nsys, _NUMBER.sub("0", trace.path.name)))
    jobs = [job for traces in alone.values() for job in _jobs_of_names(traces)]
    return jobs + [job for traces in groups.values() for job in _jobs_of_ranks(None, traces)]


def _jobs_of_names(traces: list[TraceHeader]) -> list[Job]:
    """Return the jobs of traces whose names differ in numbers only: one if the numbers are ranks."""
    ranks = from_names([trace.path.name for trace in traces])
    if len({*ranks}) > 1 and None not in ranks and all(trace.top.rank is None for trace in traces):
        return split_cycles(
            None, [Source(trace.path, rank) for trace, rank in zip(traces, ranks, strict=True)]
        )
    return [_job_of_one(trace) for trace in traces]


def _job_of_one(trace: TraceHeader) -> Job:
    """Return the job of a single trace, with the rank that it declares, else that in its name."""
    rank = from_name(trace.path.name) if trace.top.rank is None else trace.top.rank
    (job,) = split_cycles(None, [Source(trace.path, rank)])
    return job


_TRACE_NAME = re.compile(r"\.json(\.gz)?$|\.pt\.trace[^/]*$")
_NUMBER = re.compile(r"\d+")
_HEAD = 1 << 12  # bytes that tell a manifest
_OTHER_LIMIT = 64 << 20  # most bytes of a JSON file that are read to distinguish it from a damaged trace

Item = TypeVar("Item")
Key = TypeVar("Key")


def _jobs_of(root: Place, headers: list[TraceHeader], skipped: dict[Place, Diagnostic]) -> list[Job]:
    """Return the jobs of the traces in a folder and its subfolders, in the order of their first trace.

    Args:
        root: The folder.
        headers: The traces.
        skipped: Notes on other files.

    Raises:
        UnusableInputError: The folder has no trace.
    """
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
    return [structs.replace(job, notes=(*job.notes, *notes[number])) for number, job in enumerate(jobs)]


def _read_folder(root: Place) -> tuple[list[TraceHeader], dict[Place, Diagnostic]]:
    headers: list[TraceHeader] = []
    skipped: dict[Place, Diagnostic] = {}
    foreign: dict[Place, Diagnostic] = {}
    with convert_errors(root):
        paths = _candidates(root)
    for path, header in zip(paths, read_headers(paths), strict=True):
        if isinstance(header, TraceHeader):
            headers.append(header)
            continue
        if NOT_A_TRACE in header.message:
            foreign[path] = _describe_skipped(path, header)
        if not _TRACE_NAME.search(path.name):
            continue
        if listed := _read_manifest(path):
            skipped |= _note_offsets(path, listed)
        elif not _is_other_json(path):
            skipped[path] = _describe_skipped(path, header)
    return headers, skipped or ({} if headers else foreign)


def _describe_skipped(path: Place, error: TracekitError) -> Diagnostic:
    message = printable(error.message.replace(str(path), path.name))
    return Diagnostic(Level.WARN, "skipped_file", f"left out {file_name(path)}: {message}")


_MANIFEST = re.compile(rb'\s*\{\s*"perfetto_manifest"')  # Perfetto tells manifests by their begin, too
_MANIFEST_LIMIT = 16 << 20  # most bytes of a manifest that are read


class _Clocks(msgspec.Struct):
    """Relation of the clock of a file to that of another."""

    offset_ns: int = 0


class _Listed(msgspec.Struct):
    """A trace that a manifest lists, by its path from the folder of the manifest."""

    path: str
    clocks: _Clocks | None = None


class _Content(msgspec.Struct):
    files: list[_Listed] = msgspec.field(default_factory=list)


class _Manifest(msgspec.Struct):
    """A manifest of Perfetto: https://perfetto.dev/docs/reference/perfetto-manifest."""

    content: _Content = msgspec.field(name="perfetto_manifest")


def _read_manifest(path: Place) -> list[_Listed] | None:
    """Return the traces that a manifest of Perfetto lists, none if it is damaged; None for another file."""
    text = b""
    with suppress(OSError), path.open("rb") as stream:  # which reading it as a trace reports
        text = stream.read(_HEAD)
        text += stream.read(_MANIFEST_LIMIT) if _MANIFEST.match(text) else b""
    if not _MANIFEST.match(text):
        return None
    with suppress(*UNREADABLE):
        return msgspec.json.decode(text, type=_Manifest).content.files
    return []


def _jobs_of_manifest(manifest: Place, listed: list[_Listed]) -> list[Job]:
    """Return the jobs of the traces that a manifest lists.

    Raises:
        UnusableInputError: It lists none, or one outside of its folder.
    """
    names = dict.fromkeys(file.path for file in listed)
    outside = [name for name in names if {"", ".", ".."} & {*name.split("/")}]
    if outside or not names:
        what = f"lists {printable(outside[0])}, which is not in its folder" if outside else "lists no traces"
        hint = "unpack its archive, and import the folder"
        raise UnusableInputError(f"{manifest} is a manifest of Perfetto that {what}", hint=hint)
    paths = [manifest.parent / name for name in names]
    headers: list[TraceHeader] = []
    skipped = _note_offsets(manifest, listed)
    for path, header in zip(paths, read_headers(paths), strict=True):
        if isinstance(header, TraceHeader):
            headers.append(header)
        else:
            skipped[path] = _describe_skipped(path, header)
    return _jobs_of(manifest.parent, headers, skipped)


def _note_offsets(manifest: Place, listed: Iterable[_Listed]) -> dict[Place, Diagnostic]:
    """Note that clocks are related by a manifest, which is not applied."""
    count = sum(file.clocks is not None and file.clocks.offset_ns != 0 for file in listed)
    if not count:
        return {}
    message = f"{file_name(manifest)}: clock offsets of {count} of the traces are not applied"
    return {manifest: Diagnostic(Level.WARN, "clock_offsets", message)}


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
    """Return the jobs of exports: one per folder of those whose names contain different ranks."""
    for folder, exports in _group_by(headers, _folder).items():
        sources = [Source(header.path, from_name(header.path.name)) for header in exports]
        ranked = [source for source in sources if source.rank is not None]
        if 1 < len(ranked) == len({source.rank for source in ranked}):
            yield from split_cycles(folder.resolve().name, ranked)
            exports = [header for header in exports if from_name(header.path.name) is None]
        yield from map(_job_of_one, exports)


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
    declared = {_folder(trace) for trace in headers if trace.top.rank is not None}
    for folder, traces in _group_by((trace for trace in headers if trace.top.rank is None), _folder).items():
        paths = [trace.path for trace in traces]
        rank = from_name(folder.name) if folder != root else None
        if len(paths) > 1:
            ranked, others = _assign_ranks(paths, is_assumed=folder not in declared)
            yield from split_cycles(folder.resolve().name, ranked)
            yield from map(_job_beside_ranks, others)
        elif rank is not None:
            nested[folder.parent].append(Source(paths[0], rank))
        else:
            yield _job_of_one(traces[0])
    for folder, sources in nested.items():
        if 1 < len(sources) == len({source.rank for source in sources}):
            yield from split_cycles(folder.resolve().name, sources)
        else:
            yield from (single_job(source.path) for source in sources)


def _job_beside_ranks(path: Place) -> Job:
    """Return the job of another process of a job, such as a coordinator, with a note."""
    message = f"{file_name(path)}: no rank, as traces beside it have: another process, in a run of its own"
    return structs.replace(single_job(path), notes=(Diagnostic(Level.INFO, "no_rank", message),))


def _assign_ranks(paths: list[Place], *, is_assumed: bool) -> tuple[list[Source], list[Place]]:
    """Assign ranks from file names, else in the order of the names; return the files of other processes too.

    If several names have different ranks, a file without one is of another process, such as a coordinator.

    Args:
        paths: The files.
        is_assumed: Whether files without a rank in their name are ranks; not beside some that declare theirs.
    """
    ranks = from_names([path.name for path in paths])
    named = [rank for rank in ranks if rank is not None]
    if len(named) == len(paths) or len(set(named)) > 1:
        pairs = [*zip(paths, ranks, strict=True)]
        sources = [Source(path, rank) for path, rank in pairs if rank is not None]
        return sources, [path for path, rank in pairs if rank is None]
    if not is_assumed:
        return [], paths
    return [Source(path, number, assumed=True) for number, path in enumerate(paths)], []
