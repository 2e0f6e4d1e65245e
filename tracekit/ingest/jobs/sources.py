"""Source files of a job: names, sizes and identities, errors of reading them, captures of graphs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import structs

from tracekit.ingest.jobs.ranks import from_name
from tracekit.ingest.kineto.source import convert_errors, file_bytes, file_name
from tracekit.runs import redaction
from tracekit.runs.meta import Diagnostic
from tracekit.storage import STDIN, Kind, Place, inside, kind

_SAMPLE = 1 << 20


def identity(path: Place) -> dict[str, Any]:
    """Return the identity of a file or a folder of tables, from parts of it; that of a stream is its name.

    Raises:
        UnusableInputError: The file cannot be read.
    """
    if path == STDIN:
        return {"name": "stdin"}
    if kind(path) is Kind.STREAM:
        return {"name": file_name(path)}
    with convert_errors(path):
        is_folder = kind(path) is Kind.FOLDER
        inside = sorted(file for file in path.iterdir() if kind(file) is Kind.FILE) if is_folder else [path]
        digests = [_digest(file, file.stat().st_size) for file in inside]
        return {
            "name": file_name(path),
            "bytes": sum(file.stat().st_size for file in inside),
            "mtime_ns": max((file.stat().st_mtime_ns for file in inside), default=0),
            "sampled_sha256": hashlib.sha256("".join(digests).encode()).hexdigest()
            if is_folder
            else digests[0],
        }


def _digest(path: Place, length: int) -> str:
    """Return the SHA-256 of a file's first, middle and last MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for start in sorted({0, max(0, (length - _SAMPLE) // 2), max(0, length - _SAMPLE)}):
            stream.seek(start)
            digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()


def have_digests(identities: list[dict[str, Any]]) -> bool:
    """Return whether all identities contain digests; those of streams and older imports do not."""
    return all("sampled_sha256" in identity_ for identity_ in identities)


_SUFFIX = re.compile(r"(\.pt)?(\.trace)?(\.json)?(\.gz)?$|\.(sqlite|nsys-rep|qdrep)$|_pqtdir$")
_CONCURRENT = 8  # files that are read concurrently
_INFLATED = 12  # least ratio of a trace's size to its gzipped size


class Source(msgspec.Struct, frozen=True):
    """Trace of a job."""

    path: Place
    # its rank: declared in the trace, from its name, or assumed from the order of files; None for a single
    # trace that does not declare one before its events
    rank: int | None = None
    assumed: bool = False  # whether the rank is assumed
    steps: str = ""  # name of the ranges that are the steps; empty for the usual markers
    serving: tuple[str, ...] = ()  # patterns of ranges of an inference server, beside the built-in ones
    captures: tuple[Place, ...] = ()  # traces of the captures of its graphs

    @property
    def size(self) -> int:
        """Bytes of the file; 0 for a stream."""
        return file_bytes(self.path)

    @property
    def text_bytes(self) -> int:
        """Estimated bytes of text to decode, more than a gzipped file's size; 0 if unknown."""
        return self.size * (_INFLATED if self.path.suffix == ".gz" else 1)

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the file."""
        return identity(self.path)


class Job(msgspec.Struct, frozen=True):
    """Traces that become one run."""

    name: str
    sources: tuple[Source, ...]
    notes: tuple[Diagnostic, ...] = ()  # diagnostics of the search for files
    world_size: int = 0  # number of ranks that its traces declare; 0 if they declare none


def identities(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Return the identities of the files; several are read concurrently, as storage may be remote."""
    with ThreadPoolExecutor(_CONCURRENT, "tracekit-header") as threads:
        return list(threads.map(lambda source: source.identity, sources))


def capture_identities(sources: Iterable[Source]) -> list[dict[str, Any]]:
    """Return the identities of the captures of some traces, each once.

    Raises:
        UnusableInputError: A file cannot be read.
    """
    paths = dict.fromkeys(path for source in sources for path in source.captures)
    return [identity(path) for path in paths]


def split_cycles(name: str | None, sources: list[Source]) -> list[Job]:
    """Split sources into jobs with one trace per rank: the n-th trace of a rank goes to the n-th job.

    Args:
        name: The jobs' name; None names each after its first trace.
        sources: Traces with a rank.
    """
    jobs: list[dict[int | None, Source]] = []
    for source in sorted(sources, key=lambda source: source.path.name):
        free = next((cycle for cycle in jobs if source.rank not in cycle), None)
        if free is None:
            jobs.append(free := {})
        free[source.rank] = source
    ordered = [sorted(job.values(), key=lambda source: (source.rank or 0, source.path.name)) for job in jobs]
    return [Job(name or _stem(job[0].path), tuple(job)) for job in ordered]


def without_hosts(job: Job, hosts: Sequence[Source]) -> list[Job]:
    """Return the job without some traces, its assumed ranks counted anew, and a job for each of these."""
    paths = [source.path for source in hosts]
    workers = [source for source in job.sources if source.path not in paths]
    ranked = [structs.replace(source, rank=rank) for rank, source in enumerate(workers)]
    rest = single_job(workers[0].path) if len(workers) == 1 else structs.replace(job, sources=tuple(ranked))
    return [structs.replace(rest, notes=job.notes), *map(single_job, paths)]


def single_job(path: Place) -> Job:
    """Return the job of a single trace."""
    return Job(_stem(path), (Source(path),))


def _stem(path: Place) -> str:
    return _SUFFIX.sub("", redaction.redact_trace_name(path.name)) or "trace"


DETAILS = "execution_details.json"
"""List of captures by tools for traces of serving engines, with `batch_size` and `mode` of the graph."""
_CAPTURE = re.compile(r"(?i)capture.*\.json(\.gz)?$")


def list_captures(folder: Place) -> list[Place]:
    """Return the captures of a folder with `execution_details.json`, sorted by name.

    These are the listed files; if none of them exists, the traces with `capture` in their names.
    """
    details = folder / DETAILS
    if kind(details) is not Kind.FILE:
        return []
    try:
        with details.open("rb") as stream:
            entries = msgspec.json.decode(stream.read(_SAMPLE))
    except (OSError, msgspec.DecodeError):
        return []
    described = [  # the other entries of such a list have no mode
        entry
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and {"mode", "batch_size"} <= entry.keys()
    ]
    names = {str(entry.get("file", "")) for entry in described}
    files = [path for path in inside(folder) if path.is_file()]
    captures = [path for path in files if path.name in names]
    return sorted(
        captures or [path for path in files if _CAPTURE.search(path.name)], key=lambda path: path.name
    )


def captures_of(source: Source, places: Sequence[Place] = ()) -> tuple[Place, ...]:
    """Return the captures of a trace: those given, else those beside it; of its rank if their names tell."""
    if places:
        return tuple(places)
    if kind(source.path) is not Kind.FILE:
        return ()
    folder = source.path.parent
    captures = [*list_captures(folder), *list_captures(folder / "capture_traces")]
    if source.path in captures:
        return ()
    return tuple(path for path in captures if from_name(path.name) in (None, source.rank or 0))


def with_captures(job: Job, places: Sequence[Place] = ()) -> Job:
    """Return a job with the captures of its graphs: those given, else those beside each trace."""
    sources = tuple(structs.replace(source, captures=captures_of(source, places)) for source in job.sources)
    return structs.replace(job, sources=sources)
