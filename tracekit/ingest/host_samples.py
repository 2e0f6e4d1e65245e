"""Write samples of Python stacks, which the agent takes in a program, as a table of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tracekit.ingest.write import write_table
from tracekit.runs import redaction
from tracekit.schema import HOST_SAMPLES, C


@dataclass(frozen=True)
class HostSamples:
    """Samples of one process.

    Attributes:
        rank: Its rank.
        samples: Time of each, ns since the epoch, number of its stack, 1 in a profiled step, else 0, thread,
            and the last four columns of the table.
        stacks: Functions of each distinct stack, and the lines that run in them; innermost first.
    """

    rank: int
    samples: list[Any]
    stacks: list[tuple[str, str]]

    @classmethod
    def of(cls, rank: int, facts: Mapping[str, Any]) -> Self:
        """Return the samples that `tracekit.recording.agent.stack_sampler` describes."""
        return cls(rank, **facts)


def write(directory: Path, recorded: Sequence[HostSamples], zero_ns: int) -> None:
    """Write samples to a draft run, in order of time, with user names redacted; creates no file without any.

    Args:
        directory: The run.
        recorded: Samples of each rank.
        zero_ns: The run's zero, ns since the epoch.
    """
    rows = [
        (unix_ns - zero_ns, process.rank, tid, *process.stacks[stack], profiled, *known)
        for process in recorded
        for unix_ns, stack, profiled, tid, *known in process.samples
    ]
    if not rows:
        return
    rows.sort(key=itemgetter(0, 1))
    times, ranks, threads, stacks, lines, *numbers = zip(*rows, strict=True)
    columns = {
        C.T_NS: pa.array(times, pa.int64()),
        C.RANK: pa.array(ranks, pa.int32()),
        C.TID: pa.array(threads, pa.int64()),
        C.STACK: pa.array(redaction.redact_texts(list(stacks))).dictionary_encode(),
        C.SOURCE_LINES: pa.array(lines).dictionary_encode(),
        **{
            name: pa.array(values, pa.int64())
            for name, values in zip(HOST_SAMPLES.arrow.names[-len(numbers) :], numbers, strict=True)
        },
    }
    write_table(
        pa.table(columns, schema=HOST_SAMPLES.arrow), HOST_SAMPLES, directory / f"{HOST_SAMPLES.name}.parquet"
    )
