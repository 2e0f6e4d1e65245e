"""Simulated pipeline-parallel jobs: GPipe, 1F1B and interleaved 1F1B, with the schedule of every stage.

Stage s of p stages has v chunks of layers: chunk c is the part c·p + s of the model. A message leaves while
the last part of its tensor is computed, so that transfers add nothing and the bubble is that of the
schedule alone.

Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM,
2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samples.simulator.events import Kind
from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORWARD, BACKWARD = "F", "B"
GPIPE, ONE_F_ONE_B = "GPipe", "1F1B"
FORWARD_NS, BACKWARD_NS = 1_000_000, 2_000_000
MESSAGE_NS = 10_000
LEAD_NS = 5_000_000
"""Time from the start of a step on the host to its first kernel: the host launches the whole step ahead."""
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GRID = (528, 1, 1)


@dataclass(frozen=True)
class Task:
    """One forward or backward of a microbatch in a chunk of layers."""

    kind: str
    microbatch: int
    chunk: int


@dataclass(frozen=True)
class Timed:
    """A task with its times, relative to the first start of the pipeline."""

    task: Task
    start: int
    end: int


def schedule(
    stage: int, stages: int, microbatches: int, *, chunks: int = 1, kind: str = ONE_F_ONE_B
) -> list[Task]:
    """Order of the tasks of a stage.

    Example:
        >>> [task.kind + str(task.microbatch) for task in schedule(0, 2, 3)]
        ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    total = microbatches * chunks

    def task(kind: str, number: int) -> Task:
        block, place = divmod(number, stages * chunks)
        chunk = place // stages
        return Task(kind, block * stages + place % stages, chunk if kind == FORWARD else chunks - 1 - chunk)

    forward = (
        [task(FORWARD, number) for number in range(total)]
        if chunks > 1
        else [Task(FORWARD, number, 0) for number in range(total)]
    )
    backward = (
        [task(BACKWARD, number) for number in range(total)]
        if chunks > 1
        else [Task(BACKWARD, number, 0) for number in range(total)]
    )
    warm = stages - 1 - stage if chunks == 1 else 2 * (stages - 1 - stage) + (chunks - 1) * stages
    warm = total if kind == GPIPE else min(warm, total)
    steady = [each for pair in zip(forward[warm:], backward, strict=False) for each in pair]
    return [*forward[:warm], *steady, *backward[total - warm :]]


def timeline(
    orders: Sequence[Sequence[Task]],
    *,
    chunks: int,
    durations: Mapping[str, int],
    slow: Mapping[int, int] | None = None,
) -> list[list[Timed]]:
    """Times of every task: each begins when its stage is free and its input has arrived.

    Args:
        orders: Tasks of each stage in order.
        chunks: Chunks of layers per stage.
        durations: Time of a forward and of a backward of one chunk.
        slow: Extra time of each task by stage.
    """
    stages, last = len(orders), len(orders) * chunks - 1
    done: dict[tuple[str, int, int], int] = {}
    found: list[list[Timed]] = [[] for _ in orders]
    while any(len(found[stage]) < len(order) for stage, order in enumerate(orders)):
        for stage, order in enumerate(orders):
            while len(found[stage]) < len(order):
                task = order[len(found[stage])]
                part = task.chunk * stages + stage
                needs = _needs(task, part, last)
                if any(need not in done for need in needs):
                    break
                free = found[stage][-1].end if found[stage] else 0
                start = max([free, *(done[need] for need in needs)])
                end = start + durations[task.kind] + (slow or {}).get(stage, 0)
                done[task.kind, part, task.microbatch] = end
                found[stage].append(Timed(task, start, end))
    return found


def _needs(task: Task, part: int, last: int) -> list[tuple[str, int, int]]:
    if task.kind == FORWARD:
        return [(FORWARD, part - 1, task.microbatch)] if part else []
    following = [(BACKWARD, part + 1, task.microbatch)] if part < last else []
    return [(FORWARD, part, task.microbatch), *following]


def pipeline(
    stages: int,
    microbatches: int,
    *,
    chunks: int = 1,
    kind: str = ONE_F_ONE_B,
    steps: int = 2,
    durations: tuple[int, int] = (FORWARD_NS, BACKWARD_NS),
    slow: Mapping[int, int] | None = None,
    description: str = "PIPELINE_MODEL_PARALLEL_GROUP",
    coalesced: bool = False,
    clocks: Mapping[int, int] | None = None,
) -> list[Program]:
    """A pipeline-parallel job, one program per stage.

    Args:
        stages: Number of stages.
        microbatches: Microbatches per step.
        chunks: Chunks of layers per stage.
        kind: `GPIPE` or `ONE_F_ONE_B`.
        steps: Profiled steps.
        durations: Time of the forward and of the backward of one chunk.
        slow: Extra time of each task by stage.
        description: Description of the process group.
        coalesced: Launch sends and receives outside of their ops, as `batch_isend_irecv` does.
        clocks: How much later than the first one the clock of each stage is.
    """
    orders = [schedule(stage, stages, microbatches, chunks=chunks, kind=kind) for stage in range(stages)]
    times = dict(zip((FORWARD, BACKWARD), durations, strict=True))
    timed = timeline(orders, chunks=chunks, durations=times, slow=slow)
    length = max(own[-1].end for own in timed)
    programs = []
    for stage in range(stages):
        program = Program(rank=stage, world_size=stages, device=stage, start_ns=(clocks or {}).get(stage, 0))
        writer = _Stage(program, stage, stages, chunks, description, coalesced)
        begun = program.now_ns
        for step in range(steps):
            program.wait(begun + step * (length + 2 * LEAD_NS) - program.now_ns)
            with program.step():
                writer.write(timed, program.now_ns + LEAD_NS)
                with program.annotation("Optimizer.step#Adam.step"), program.op("aten::_fused_adam_"):
                    program.kernel("adam", FORWARD_NS, grid=GRID)
                program.synchronize()
        programs.append(program)
    return programs


@dataclass(frozen=True)
class _Stage:
    """Writes the steps of one stage."""

    program: Program
    stage: int
    stages: int
    chunks: int
    description: str
    coalesced: bool

    def write(self, timed: list[list[Timed]], zero: int) -> None:
        """Launch the tasks and messages of a step in the order of their starts on the device."""
        events: list[tuple[int, int, int, Task | tuple[str, int, str]]] = [
            (zero + one.start, 1, one.end - one.start, one.task) for one in timed[self.stage]
        ]
        events += [(zero + start, 0, ns, message) for start, ns, message in self._messages(timed)]
        for start, _, ns, what in sorted(events, key=lambda event: event[:3]):
            if isinstance(what, Task):
                self._compute(what, start, ns)
            else:
                self._talk(what, start, ns)

    def _compute(self, task: Task, start: int, ns: int) -> None:
        program = self.program
        name = "aten::mm" if task.kind == FORWARD else "autograd::engine::evaluate_function: MmBackward0"
        args: dict[str, Any] = (
            {"Sequence number": task.microbatch, "Fwd thread id": 0} if task.kind == FORWARD else {}
        )
        with program.op(name, **args):
            program.kernel("gemm", ns, grid=GRID, delay_ns=start - program.now_ns)

    def _talk(self, message: tuple[str, int, str], start: int, ns: int) -> None:
        program, (direction, peer, kind) = self.program, message
        recorded: dict[str, Any] = {
            "Collective name": direction,
            "In msg nelems": 1 << 20,
            "Out msg nelems": 1 << 20,
            "dtype": "BFloat16",
            "Process Group Name": "5",
            "Process Group Description": self.description,
            "Process Group Ranks": str([*range(self.stages)]),
            "Group size": self.stages,
            ("Dst Rank" if direction == "send" else "Src Rank"): peer,
        }
        stream = 20 + 4 * peer + 2 * (direction == "send") + (kind == BACKWARD)
        with program.op("record_param_comms", **recorded):
            if not self.coalesced:
                program.kernel(SEND_RECV, ns, stream=stream, delay_ns=start - program.now_ns)
        if self.coalesced:
            with program.span(Kind.ANNOTATION, "nccl:coalesced"):
                program.kernel(SEND_RECV, ns, stream=stream, delay_ns=start - program.now_ns)

    def _messages(self, timed: list[list[Timed]]) -> list[tuple[int, int, tuple[str, int, str]]]:
        """Start, duration and content of every message of the stage; idle stages begin to receive early."""
        last, found = self.stages * self.chunks - 1, []
        arrivals: dict[tuple[int, str], list[int]] = {}
        for stage, own in enumerate(timed):
            for one in own:
                part = one.task.chunk * self.stages + stage
                if part == (last if one.task.kind == FORWARD else 0):
                    continue
                to = (part + (1 if one.task.kind == FORWARD else -1)) % self.stages
                if stage == self.stage:
                    found.append((one.end - MESSAGE_NS, MESSAGE_NS, ("send", to, one.task.kind)))
                if to == self.stage:
                    arrivals.setdefault((stage, one.task.kind), []).append(one.end)
        ends = [one.end for one in timed[self.stage]]
        for (source, kind), times in arrivals.items():
            before = 0
            for arrival in sorted(times):
                idle = max([end for end in ends if end <= arrival - MESSAGE_NS], default=0)
                busy = any(one.start < arrival < one.end for one in timed[self.stage])
                start = arrival - MESSAGE_NS if busy else max(idle, before)
                found.append((start, arrival - start, ("recv", source, kind)))
                before = arrival
        return found
