"""From the decoded traces of one job to its run: what they share, and their places beside one another."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tracekit.errors import TracekitError
from tracekit.ingest import files, notes, ranks
from tracekit.ingest.crew import Decoded, Failed, Place, Written
from tracekit.ingest.origin import completed
from tracekit.ingest.samples import write_samples
from tracekit.meta import Diagnostic, Level
from tracekit.spelling import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.closing import Size
    from tracekit.ingest.crew import Crew
    from tracekit.ingest.samples import Sample
    from tracekit.ingest.sources import Source
    from tracekit.meta import RunMeta
    from tracekit.run import Run
    from tracekit.store import Draft

LEFT_OUT = "left_out"
"""Code of the diagnostic for a trace of the job that could not be imported."""


def assemble(
    draft: Draft,
    crew: Crew,
    outcomes: Sequence[Decoded | Failed],
    meta: RunMeta,
    *,
    samples: Sequence[Sample] = (),
    told: bool = False,
) -> Run:
    """Have the traces that could be decoded written as one run; the others are named in it.

    Args:
        draft: The run.
        crew: Who writes.
        outcomes: What became of decoding.
        meta: What is known about the run.
        samples: Rows of `counters` taken beside the traces.
        told: Whether the run says which files it was made of.

    Raises:
        TracekitError: No trace of the job can be used; the first one's error.
    """
    decoded, failed = _parted(outcomes)
    decoded = _ordered(decoded)
    written, lost = _written(draft, crew, decoded)
    failed += lost
    there = [one for one in decoded if id(one) in written]
    if not there:
        raise failed[0].error
    done = [written[id(one)] for one in there]
    zero = _zero(there)
    write_samples(draft.path, samples, zero)
    tops = [one.trace.top for one in there]
    known = completed(meta, tops, has_device=any(each.linked.device for each in done))
    if told:
        known = _with_sources(known, outcomes)
    found = [*meta.diagnostics, *map(_left_out, failed), *_noticed(there, done)]
    files_of_it = [file for each in done for file in each.delivered]
    return draft.commit(replace(known, t0_unix_ns=zero, diagnostics=found), files_of_it)


def _parted(outcomes: Sequence[Decoded | Failed]) -> tuple[list[Decoded], list[Failed]]:
    decoded = [one for one in outcomes if isinstance(one, Decoded)]
    return decoded, [one for one in outcomes if isinstance(one, Failed)]


def _ordered(decoded: list[Decoded]) -> list[Decoded]:
    """By rank, each with the source that its trace settles."""
    if not decoded:
        return []
    by_trace = {id(one.trace): one for one in decoded}
    pairs = ranks.ordered([(one.source, one.trace) for one in decoded])
    return [structs.replace(by_trace[id(trace)], source=source) for source, trace in pairs]


def _written(draft: Draft, crew: Crew, decoded: list[Decoded]) -> tuple[dict[int, Written], list[Failed]]:
    """Have traces written until all that are left are; those behind one that cannot be move up.

    Returns:
        What became of each that is written, by the identity of its `Decoded`, and the others.
    """
    done: dict[int, tuple[Place, Written]] = {}
    failed: list[Failed] = []
    left = decoded
    while True:
        places = _places(draft, left)
        todo = [
            (one, place)
            for one, place in zip(left, places, strict=True)
            if id(one) not in done or done[id(one)][0] != place
        ]
        outcomes = crew.write(todo)
        for (one, place), outcome in zip(todo, outcomes, strict=True):
            if isinstance(outcome, Failed):
                failed.append(outcome)
                left = [other for other in left if other is not one]
            else:
                done[id(one)] = place, outcome
        if len(left) == len(places):
            return {id(one): done[id(one)][1] for one in left}, failed


def _zero(decoded: Sequence[Decoded]) -> int:
    return min(one.size.first_ns for one in decoded)


def _places(draft: Draft, decoded: Sequence[Decoded]) -> list[Place]:
    if not decoded:
        return []
    zero = _zero(decoded)
    host = accumulate((one.size.host for one in decoded), initial=0)
    device = accumulate((one.size.device for one in decoded), initial=0)
    return [
        Place(
            directory=draft.path,
            part=number if len(decoded) > 1 else None,
            rank=one.source.rank or 0,
            host_row=host_row,
            device_row=device_row,
            zero_ns=zero,
        )
        for number, (one, host_row, device_row) in enumerate(zip(decoded, host, device, strict=False))
    ]


def _noticed(decoded: Sequence[Decoded], written: Sequence[Written]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for one, each in zip(decoded, written, strict=True):
        found += one.trace.notes()
        found += notes.of_links(one.trace, each.linked)
    tops = [one.trace.top for one in decoded]
    sizes: list[Size] = [one.size for one in decoded]
    return [*found, *notes.of_ranks([one.source for one in decoded], tops, sizes)]


def _left_out(failed: Failed) -> Diagnostic:
    source, error = failed.source, failed.error
    name = files.name(source.path)
    which = name if source.rank is None else f"rank {source.rank} ({name})"
    said = printable(error.message.replace(str(source.path), name))
    return Diagnostic(Level.ERROR, LEFT_OUT, f"left out {which}: {said}")


def _with_sources(meta: RunMeta, outcomes: Sequence[Decoded | Failed]) -> RunMeta:
    """The run with what tells its files apart: a file of several ranks stands once."""
    told: dict[int, dict[str, Any]] = {}
    for one in outcomes:
        told[id(one.source)] = one.identity if isinstance(one, Decoded) else _identity(one.source)
    options = {"sources": list(told.values()), **meta.collector.options}
    return replace(meta, collector=replace(meta.collector, options=options))


def _identity(source: Source) -> dict[str, Any]:
    with suppress(TracekitError):
        return source.identity
    return {"name": files.name(source.path)}
