"""Write samples of Python stacks, which the agent takes in a program, as a table of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tracekit.ingest.write import write_table
from tracekit.runs import redaction
from tracekit.schema import HOST_SAMPLES, C


@dataclass(frozen=True)
class HostSamples:
    """Samples of one thread.

    Attributes:
        rank: Rank of its process.
        tid: The thread.
        samples: Time of each, ns since the epoch, number of its stack, and 1 in a profiled step, else 0.
        stacks: Functions of each distinct stack, and the lines that run in them; innermost first.
    """

    rank: int
    tid: int
    samples: list[tuple[int, int, int]]
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
        (unix_ns - zero_ns, thread.rank, thread.tid, *thread.stacks[stack], profiled)
        for thread in recorded
        for unix_ns, stack, profiled in thread.samples
    ]
    if not rows:
        return
    times, ranks, threads, stacks, lines, profiled = zip(*sorted(rows), strict=True)
    columns = {
        C.T_NS: pa.array(times, pa.int64()),
        C.RANK: pa.array(ranks, pa.int32()),
        C.TID: pa.array(threads, pa.int64()),
        C.STACK: pa.array(redaction.redact_texts(list(stacks))).dictionary_encode(),
        C.SOURCE_LINES: pa.array(lines).dictionary_encode(),
        C.PROFILED: pa.array(profiled, pa.int64()),
    }
    write_table(
        pa.table(columns, schema=HOST_SAMPLES.arrow), HOST_SAMPLES, directory / f"{HOST_SAMPLES.name}.parquet"
    )
