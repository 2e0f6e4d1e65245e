"""Group files, folders and standard input into jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from tracekit.errors import TracekitError
from tracekit.ingest.jobs.ranks import TraceHeader, read_headers
from tracekit.ingest.jobs.sources import Job, Source, single_job, split_cycles
from tracekit.ingest.nsys import is_nsys
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
                    from tracekit.ingest.jobs.folders import jobs_in  # not needed for named files

                    result.jobs.extend(jobs_in(path))
                case _:
                    single.append(path)
        except TracekitError as error:
            result.errors.append(error)
    headers = read_headers(single)
    result.errors.extend(header for header in headers if isinstance(header, TracekitError))
    result.jobs.extend(_group_by_job([header for header in headers if isinstance(header, TraceHeader)]))
    return result


def _stream(path: Place) -> Job:
    """Return the job of a stream, which is not examined as it can be read only once."""
    if path != STDIN and not path.name.isdigit():  # a name such as /dev/fd/63 is meaningless
        return single_job(path)
    return Job("stdin" if path == STDIN else "pipe", (Source(path),))


def _group_by_job(files: list[TraceHeader]) -> list[Job]:
    jobs: list[Job] = []
    groups: dict[object, list[Source]] = defaultdict(list)
    for trace in files:
        if trace.group is None:
            jobs += split_cycles(None, [Source(trace.path, trace.top.rank)])
        else:
            groups[trace.group].append(Source(trace.path, trace.top.rank))
    return jobs + [job for sources in groups.values() for job in split_cycles(None, sources)]
