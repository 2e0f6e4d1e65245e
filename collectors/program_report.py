"""Read the recordings and notes that the processes of a program left, and report problems."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import CollectionError, ProgramFailedError, TracekitError
from tracekit.ingest.write import Sample
from tracekit.runs.meta import Diagnostic, Level, Timings

from .assignment import View

if TYPE_CHECKING:
    from tracekit.recording.collector import Program

_FACTS = re.compile(r"rank-(\d+)(\.first)?\.facts")


@dataclass(frozen=True)
class Rank:
    """Recording of one process.

    Attributes:
        number: Rank of the process.
        first_call: Whether only the program's first call was recorded.
        trace: Path of the trace.
        facts: Description of the trace by `tracekit.recording.agent.agent`.
    """

    number: int
    first_call: bool
    trace: Path
    facts: dict[str, Any]


def recorded_ranks(directory: Path) -> list[Rank]:
    """Return the recordings in a directory by rank; those of first calls only if there are no others."""
    found = [
        Rank(int(match[1]), bool(match[2]), path.with_suffix(".json"), json.loads(path.read_text()))
        for path in directory.iterdir()
        if (match := _FACTS.fullmatch(path.name))
    ]
    windows = [rank for rank in found if not rank.first_call]
    return sorted(windows or found, key=lambda rank: rank.number)


def timings(ranks: Sequence[Rank]) -> Timings | None:
    """Return step times of the first rank before and after its window; None if there are none."""
    facts = ranks[0].facts
    later_ns = facts.get("later_ns", [])  # missing if the program did not end by itself
    step_ns = [*facts["step_ns"], *later_ns]
    if not step_ns:
        return None
    return Timings(step_ns, [], facts["clock"], later=len(later_ns), left_out=facts.get("left_out", 0))


def samples(ranks: Sequence[Rank]) -> tuple[Sample, ...]:
    """Return peak memory of the first rank until its window."""
    facts = ranks[0].facts
    return tuple(
        Sample(facts["began_unix_ns"], source, device, metric, "bytes", value)
        for source, device, metric, value in facts["peaks"]
    )


def views(ranks: Sequence[Rank]) -> list[View]:
    """Return the devices that each rank saw and used."""
    return [
        View.of(rank.number, rank.facts["environment"], [device for _, device, *_ in rank.facts["peaks"]])
        for rank in ranks
    ]


def diagnostics(ranks: Sequence[Rank], code: int) -> Iterator[Diagnostic]:
    """Report a failed program, an incomplete window, missing ranks, and notes of the processes."""
    facts = ranks[0].facts
    if code:
        yield Diagnostic(Level.WARN, "program_failed", f"the program {_end(code)}")
    if ranks[0].first_call:
        message = "the program ended before profiling started: only the first call of its model was recorded"
        hint = "use --start-step 0, or call tracekit.step() after each step"
        yield Diagnostic(Level.WARN, "first_call_only", f"{message}; {hint}")
    elif (recorded := facts["recorded_steps"]) < (requested := facts["requested_steps"]):
        message = f"the program ended after {recorded} of {requested} profiled steps"
        yield Diagnostic(Level.WARN, "window_cut_short", message)
    if facts["source"] == "call":
        message = "the program has no optimizer: each call of its first module is a step"
        yield Diagnostic(Level.INFO, "steps_are_calls", f"{message}; to mark steps, call tracekit.step()")
    missing = max(rank.facts["world_size"] for rank in ranks) - len(ranks)
    if missing > 0:
        yield Diagnostic(Level.WARN, "ranks_missing", f"{missing} of the ranks recorded nothing")
    for kind, message in sorted({(kind, message) for rank in ranks for kind, message in rank.facts["notes"]}):
        yield Diagnostic(Level.WARN, kind, message)


def _end(code: int) -> str:
    """Describe how a program ended that did not succeed."""
    try:
        return f"was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"failed with exit code {code}"


def failure(program: Program, directory: Path, code: int) -> TracekitError:
    """Return the error that says why nothing was recorded, and what to do."""
    if code:
        message = f"the program {_end(code)} before anything was recorded"
        return ProgramFailedError(message, hint="check its output", program_code=code)
    notes = [json.loads(path.read_text()) for path in directory.glob("process-*.note")]
    if not notes:
        return CollectionError(
            "nothing was recorded: no Python process that imported torch exited normally",
            hint="run a program that uses torch, without Python's options -I, -E and -S",
        )
    note = max(notes, key=lambda one: (bool(one["error"]), one["steps_done"], one["source"]))
    if "captured_steps" in note["codes"]:
        others = f"{note['steps_done']} others ended before profiling started"
        return CollectionError(
            f"nothing was recorded: {note['error']}; {others}",
            hint="call tracekit.step() after each replay of the graph",
        )
    if note["error"]:
        return CollectionError(
            f"nothing was recorded: {note['error']}",
            hint="if the program uses its own profiler, `tracekit import` its trace",
        )
    if note["source"] in {"", "none"}:
        return CollectionError(
            "nothing was recorded: the program used no optimizer and called no module",
            hint="mark the end of each step with `import tracekit; tracekit.step()`",
        )
    steps = note["steps_done"]
    ended = f"the program ended after {steps} step{'s' * (steps != 1)}"
    return CollectionError(
        f"nothing was recorded: {ended}; recording would have started after step {program.start_step}",
        hint=f"use --start-step {max(0, steps - 1)} or less, or run the program longer",
    )
