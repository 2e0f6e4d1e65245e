"""Search of the batch size: doubled until throughput no longer rises, or memory runs out.

Source: TorchBench (Hao et al., 2023), which doubles the batch of an inference to the
best use of the device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from tracekit.sweeping.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.sweeping.model import Cell, Plan, Record

RISE = 0.05
"""Smallest relative rise of throughput for which the search continues."""


DOUBT = "; its fastest step did rise by that, so this may be noise: increase --steps and --repeat"
"""Appended if the step times of the last batch size vary by more than the required rise."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Result of a search.

    Attributes:
        best: Batch size with the highest throughput; None if none was measured.
        samples_per_second: Throughput at that batch size.
        why: Reason for the end of the search; empty until then.
    """

    best: int | None
    samples_per_second: float | None
    why: str


def doubling(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> Iterator[Cell]:
    """Yield cells with doubled batch sizes; checks the result of each before the next."""
    while not found(first, plan, done).why:
        yield _at(first, tried(first, plan, done))


def batches(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> list[Cell]:
    """Return the cells of a search with complete measurements."""
    return [_at(first, place) for place in range(tried(first, plan, done))]


def found(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> Found:
    """Return the result of a search so far."""
    rates: list[tuple[float, int]] = []
    why = ""
    for place in range(tried(first, plan, done)):
        cell = _at(first, place)
        batch, rate = cell.settings.batch_size, throughput(cell, plan, done)
        if rate is None:
            why = _ended(batch, done[cell.key, 0])
            break
        before = rates[-1][0] if rates else None
        rates.append((rate, batch))
        if why := _stop(batch, rate, before, plan):
            noisy = before is not None and rate < before * (1 + RISE) <= _fastest(cell, plan, done)
            why += DOUBT if noisy else ""
            break
    best = max(rates, default=None)
    return Found(best=best[1] if best else None, samples_per_second=best[0] if best else None, why=why)


def throughput(cell: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> float | None:
    """Return samples per second: batch size over the median of the runs' median steps; None without runs."""
    records = [done.get((cell.key, repeat)) for repeat in range(plan.repeats)]
    steps = [median(one.values.step_ns) for one in records if one and one.values and one.values.step_ns]
    return cell.settings.batch_size * 1e9 / median(steps) if steps else None


def _fastest(cell: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> float:
    """Return samples per second of the shortest step of a batch size."""
    records = (done.get((cell.key, repeat)) for repeat in range(plan.repeats))
    steps = [step for one in records if one and one.values for step in one.values.step_ns]
    return cell.settings.batch_size * 1e9 / min(steps)


def _stop(batch: int, rate: float, before: float | None, plan: Plan) -> str:
    if before is not None and rate < before * (1 + RISE):
        change = f"{100 * (rate / before - 1):+.1f}%"
        return f"throughput changed by {change} at batch size {batch}, below the required {100 * RISE:g}%"
    return f"batch size {batch} is the largest allowed" if batch * 2 > plan.most else ""


def _ended(batch: int, record: Record) -> str:
    if record.outcome is Outcome.OUT_OF_MEMORY:
        return f"batch size {batch} ran out of memory"
    return f"batch size {batch} could not be measured: {record.reason}"


def tried(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> int:
    """Count the batch sizes with complete measurements."""
    place = 0
    while all((_at(first, place).key, repeat) in done for repeat in range(plan.repeats)):
        place += 1
    return place


def _at(first: Cell, place: int) -> Cell:
    batch = first.settings.batch_size << place
    return replace(first, settings=replace(first.settings, batch_size=batch))
