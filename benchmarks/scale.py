"""Simulate how long a cluster takes to import a job of many ranks, from measured costs.

    python -m benchmarks.scale                         1,024 ranks of 1 GB, as benchmarks/text/scale.md shows
    python -m benchmarks.scale --costs costs.json      with the output of `benchmarks.scale_costs`
    python -m benchmarks.scale --ranks 256 --workers 8,16,32 --storage 2e9

The simulation follows `tracekit.executors` and `tracekit.ingest.importer.cluster`: as many tasks run as
there are workers; all ranks are decoded, then all written, each on the machine with its
spool; ranks spooled on a lost machine are decoded again; the task of a lost worker is restarted. The seed
determines the result.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
from collections import deque
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS = 5


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one rank's trace of `gigabytes` costs, and what the driver does by itself.

    Attributes:
        gigabytes: Size of the trace that the seconds below are of.
        decode_s: Seconds of one core to decode and park it.
        write_s: Seconds of one core to link it and write its tables.
        spool_bytes: Bytes of its spool on the disk of the worker's machine.
        stored_bytes: What it takes in the store.
        submit_s: Seconds of the driver and the scheduler to hand a task over and to take its answer.
        turn_s: Seconds that a worker waits for its next task.
        survey_s: Seconds of the driver to look at one trace before anything begins.
        commit_s: Seconds of the driver to commit one rank's files.
        start_s: Seconds until a worker that was lost is there again.
    """

    gigabytes: float = 1.0
    decode_s: float = 6.0
    write_s: float = 4.2
    spool_bytes: float = 0.42e9
    stored_bytes: float = 12e6
    submit_s: float = 0.005
    turn_s: float = 0.035
    survey_s: float = 0.005
    commit_s: float = 0.0001
    start_s: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is simulated.

    Attributes:
        ranks: Traces of the job.
        workers: Workers of one thread, each with a core of its own.
        per_machine: Workers that share a machine and its spool.
        storage: Bytes a second that all workers together read of the shared storage.
        spread: Standard deviation of the logarithm of a task's time: how unlike ranks and cores are.
        stragglers: Share of tasks that take `straggling` times as long.
        straggling: How many times.
        deaths_per_hour: Times that one worker is lost in an hour of work.
        machine_share: Share of these in which the whole machine is lost, with its spool.
    """

    ranks: int = 1024
    workers: int = 64
    per_machine: int = 16
    storage: float = 5e9
    spread: float = 0.1
    stragglers: float = 0.01
    straggling: float = 4.0
    deaths_per_hour: float = 0.05
    machine_share: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of it.

    Attributes:
        seconds: From the command to the run.
        attempts: Tasks that were begun.
        lost: Of these, those whose worker was lost.
        again: Traces that were decoded again because their spool was lost.
        busy: Share of the workers' time in tasks.
    """

    seconds: float
    attempts: int
    lost: int
    again: int
    busy: float


class Simulation:
    """One import."""

    def __init__(self, costs: Costs, scene: Scene, seed: int) -> None:
        """Nothing has happened yet."""
        self._costs, self._scene, self._random = costs, scene, Random(seed)  # noqa: S311 (no secret)
        self._attempts = self._lost = self._again = 0
        self._busy = 0.0
        self._readers = 1
        self._homes: dict[int, tuple[int, int]] = {}
        self._losses = [0] * (scene.workers // scene.per_machine + 1)

    def run(self) -> Result:
        """Survey, decode, write, commit."""
        costs, ranks = self._costs, self._scene.ranks
        begun = costs.survey_s * ranks
        decoded = self._phase(begun, decoding=True)
        written = self._phase(decoded, decoding=False)
        total = written + costs.commit_s * ranks
        return Result(
            seconds=total,
            attempts=self._attempts,
            lost=self._lost,
            again=self._again,
            busy=self._busy / (total * self._scene.workers),
        )

    def _phase(self, start: float, *, decoding: bool) -> float:
        """Run one task for each rank; gives the time when the last one has ended."""
        waiting = deque(range(self._scene.ranks))
        free = [(start, worker) for worker in range(self._scene.workers)]
        heapq.heapify(free)
        driver = end = start
        while waiting:
            at, worker = heapq.heappop(free)
            rank = self._chosen(waiting, worker, decoding=decoding)
            if rank is None:  # the remaining spools are on other machines
                continue
            driver = max(driver, at) + self._costs.submit_s
            self._readers = sum(each > driver for each, _ in free) + 1 + len(waiting)
            took, died = self._task(rank, worker, decoding=decoding)
            took += self._costs.turn_s
            if died:
                waiting.append(rank)
                heapq.heappush(free, (driver + took + self._costs.start_s, worker))
            else:
                end = max(end, driver + took)
                heapq.heappush(free, (driver + took, worker))
        return end

    def _chosen(self, waiting: deque[int], worker: int, *, decoding: bool) -> int | None:
        """The next rank; to be written, its spool must be on the worker's machine."""
        if decoding:
            return waiting.popleft()
        machine = worker // self._scene.per_machine
        for rank in waiting:
            if self._homes[rank][0] == machine:
                waiting.remove(rank)
                return rank
        return None

    def _task(self, rank: int, worker: int, *, decoding: bool) -> tuple[float, bool]:
        """How long a task takes, and whether it takes its worker along."""
        machine = worker // self._scene.per_machine
        there = self._homes.get(rank) == (machine, self._losses[machine])
        took = self._decoding() if decoding else self._drawn(self._costs.write_s)
        if not decoding and not there:
            self._again += 1
            took += self._decoding()
        self._attempts += 1
        death = self._random.expovariate(max(self._scene.deaths_per_hour, 1e-12) / 3600)
        if death < took:
            self._lost += 1
            self._busy += death
            if self._random.random() < self._scene.machine_share:
                self._losses[machine] += 1
            return death, True
        if decoding:
            self._homes[rank] = machine, self._losses[machine]
        self._busy += took
        return took, False

    def _decoding(self) -> float:
        """Seconds to decode a trace: of a core, or until shared storage has given it."""
        share = self._scene.storage / min(self._scene.workers, self._readers)
        return max(self._drawn(self._costs.decode_s), self._costs.gigabytes * 1e9 / share)

    def _drawn(self, seconds: float) -> float:
        factor = self._random.lognormvariate(0, self._scene.spread)
        return (
            seconds
            * factor
            * (self._scene.straggling if self._random.random() < self._scene.stragglers else 1)
        )


def simulate(costs: Costs, scene: Scene, *, seeds: Sequence[int] = range(SEEDS)) -> list[Result]:
    """One result for each seed, by time.

    Example:
        >>> quick = simulate(Costs(), Scene(ranks=64, workers=64, deaths_per_hour=0))
        >>> slow = simulate(Costs(), Scene(ranks=64, workers=8, deaths_per_hour=0))
        >>> quick[-1].seconds < slow[0].seconds
        True
    """
    return sorted((Simulation(costs, scene, seed).run() for seed in seeds), key=lambda one: one.seconds)


def row(scene: Scene, results: Sequence[Result]) -> str:
    """A line of the table."""
    middle, mean = results[len(results) // 2], statistics.mean
    times = (_time(one.seconds) for one in (middle, results[0], results[-1]))
    counts = (mean(one.lost for one in results), mean(one.again for one in results))
    return " ".join(
        [
            f"{scene.workers:>7}",
            *(f"{each:>9}" for each in times),
            f"{mean(one.busy for one in results):>6.0%}",
            *(f"{each:>6.1f}" for each in counts),
        ]
    )


HEAD = f"{'workers':>7} {'median':>9} {'fastest':>9} {'slowest':>9} {'busy':>6} {'lost':>6} {'again':>6}"


def _time(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min" if seconds >= 60 else f"{seconds:.1f} s"


def _arguments() -> argparse.Namespace:
    found = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--costs", type=Path, help="JSON with fields of Costs")
    found.add_argument("--workers", default="16,32,64,128,256,512,1024", help="how many, for each line")
    found.add_argument("--seeds", type=int, default=SEEDS, help="times that each line is simulated")
    for each in fields(Scene):
        if each.name != "workers":
            kind = int if isinstance(each.default, int) else float
            found.add_argument(f"--{each.name.replace('_', '-')}", type=kind, default=each.default)
    return found.parse_args()


def main() -> None:
    """Print the table."""
    asked = _arguments()
    measured = json.loads(asked.costs.read_text()) if asked.costs else {}
    known = {each.name for each in fields(Costs)}
    costs = Costs(**{name: value for name, value in measured.items() if name in known})
    scene = Scene(
        **{each.name: getattr(asked, each.name) for each in fields(Scene) if each.name != "workers"}
    )
    print(json.dumps({**asdict(costs), **asdict(scene)}))
    print(HEAD)
    for count in map(int, asked.workers.split(",")):
        each = replace(scene, workers=count)
        print(row(each, simulate(costs, each, seeds=range(asked.seeds))))


if __name__ == "__main__":
    main()
