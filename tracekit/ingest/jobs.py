"""Which traces belong together: files, folders and standard input become jobs, each one run of some ranks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from tracekit.errors import TracekitError
from tracekit.ingest.nsys import is_nsys
from tracekit.ingest.ranks import Found, look_each
from tracekit.ingest.sources import Job, Source, alone, cycles
from tracekit.places import STDIN, Kind, Place, kind

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Job", "Plan", "Source", "plan", "survey"]


class Plan(msgspec.Struct, frozen=True):
    """What can be imported, and why the rest cannot."""

    jobs: list[Job] = msgspec.field(default_factory=list)
    errors: list[TracekitError] = msgspec.field(default_factory=list)


def plan(paths: Sequence[Place]) -> list[Job]:
    """Group traces into jobs.

    Files with different ranks of one `distributedInfo` group are one job, and so is a folder; a rank that
    comes again starts another job (another profiled cycle of the same program).

    Raises:
        UnusableInputError: A path does not exist, or a folder holds no trace.
    """
    found = survey(paths)
    if found.errors:
        raise found.errors[0]
    return found.jobs


def survey(paths: Sequence[Place]) -> Plan:
    """Group traces into jobs as `plan` does; a path that cannot be used does not keep the others back."""
    found, single = Plan(), list[Place]()
    for path in paths:
        try:
            match kind(path):
                case Kind.STREAM:
                    found.jobs.append(_stream(path))
                case Kind.FOLDER if is_nsys(path):
                    single.append(path)
                case Kind.FOLDER:
                    found.jobs.extend(_inside(path))
                case _:
                    single.append(path)
        except TracekitError as error:
            found.errors.append(error)
    seen = look_each(single)
    found.errors.extend(one for one in seen if isinstance(one, TracekitError))
    found.jobs.extend(_grouped([one for one in seen if isinstance(one, Found)]))
    return found


def _inside(folder: Place) -> list[Job]:
    from tracekit.ingest.folders import jobs_in  # which who names a file does not need

    return jobs_in(folder)


def _stream(path: Place) -> Job:
    """A job of what can be read only once: nobody looks at it before it is imported."""
    if path == STDIN:
        return Job("stdin", (Source(path),))
    return Job("pipe", (Source(path),)) if path.name.isdigit() else alone(path)  # /dev/fd/63 says nothing


def _grouped(files: list[Found]) -> list[Job]:
    jobs: list[Job] = []
    groups: dict[object, list[Source]] = defaultdict(list)
    for trace in files:
        if trace.group is None:
            jobs += cycles(None, [Source(trace.path, trace.rank)])
        else:
            groups[trace.group].append(Source(trace.path, trace.rank))
    return jobs + [job for sources in groups.values() for job in cycles(None, sources)]
