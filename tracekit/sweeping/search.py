"""Search of the batch: doubled until throughput no longer rises, or memory ends.

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
"""What a doubled batch must bring, as a share of the throughput before."""


DOUBT = "; its fastest step did rise by that, so this may be noise: more --steps and --repeat tell"
"""Added where the steps of the last batch differ by more than what it must bring."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to.

    Attributes:
        best: Batch with the highest throughput; None where none was measured.
        samples_per_second: At that batch.
        why: Why it stopped there, in words; empty while it goes on.
    """

    best: int | None
    samples_per_second: float | None
    why: str


def doubling(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> Iterator[Cell]:
    """Cells from the first on, each with twice the batch; looks at what became of one before the next."""
    while not found(first, plan, done).why:
        yield _at(first, tried(first, plan, done))


def batches(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> list[Cell]:
    """The cells of a search whose measurements are all there."""
    return [_at(first, place) for place in range(tried(first, plan, done))]


def found(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> Found:
    """What the records of a search say so far."""
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
    """Samples per second: the batch over the median of the runs' median steps; None without a run."""
    records = [done.get((cell.key, repeat)) for repeat in range(plan.repeats)]
    steps = [median(one.values.step_ns) for one in records if one and one.values and one.values.step_ns]
    return cell.settings.batch_size * 1e9 / median(steps) if steps else None


def _fastest(cell: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> float:
    """Samples per second of the shortest step of a batch."""
    records = (done.get((cell.key, repeat)) for repeat in range(plan.repeats))
    steps = [step for one in records if one and one.values for step in one.values.step_ns]
    return cell.settings.batch_size * 1e9 / min(steps)


def _stop(batch: int, rate: float, before: float | None, plan: Plan) -> str:
    if before is not None and rate < before * (1 + RISE):
        change = f"{100 * (rate / before - 1):+.1f}%"
        return f"throughput changed by {change} at batch {batch}, less than the {100 * RISE:g}% it must rise"
    return f"batch {batch} is the largest allowed" if batch * 2 > plan.most else ""


def _ended(batch: int, record: Record) -> str:
    if record.outcome is Outcome.OUT_OF_MEMORY:
        return f"batch {batch} ran out of memory"
    return f"batch {batch} could not be measured: {record.reason}"


def tried(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> int:
    """Number of batches whose measurements are all there."""
    place = 0
    while all((_at(first, place).key, repeat) in done for repeat in range(plan.repeats)):
        place += 1
    return place


def _at(first: Cell, place: int) -> Cell:
    batch = first.settings.batch_size << place
    return replace(first, settings=replace(first.settings, batch_size=batch))
