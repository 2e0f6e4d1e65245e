"""A server that batches continuously: requests arrive, prompts are processed in chunks, and all generate.

Every step has a budget of tokens. Requests that generate take one token each; what is left goes to prompts,
in order of arrival. Arrivals and lengths follow from a linear congruential generator, so a schedule is always
the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

BUDGET, MOST_RUNNING = 2_048, 48
BASE_NS, TOKEN_NS = 20_000, 100
"""Duration of the kernel of a step: a constant, and a part per token."""
SAMPLE_NS, SCHEDULE_NS, SILENT_NS = 3_000, 7_000, 2_000
SAMPLE, SCHEDULE = "vllm/v1/sample/sampler.py(67): forward", "vllm/v1/core/sched/scheduler.py(162): schedule"


class Batch(NamedTuple):
    """What a step processes."""

    context_requests: int
    context_tokens: int
    generation_requests: int

    @property
    def kernel_ns(self) -> int:
        """Duration of its kernel."""
        return BASE_NS + TOKEN_NS * (self.context_tokens + self.generation_requests)


@dataclass
class _Request:
    prompt: int
    output: int


def schedule(steps: int) -> list[Batch]:
    """The batches of a server, of which some only process prompts, some only generate, and some do both.

    Example:
        >>> schedule(4)[0].generation_requests
        0
    """
    numbers = _numbers()
    waiting: list[_Request] = []
    running: list[_Request] = []
    found: list[Batch] = []
    while len(found) < steps:
        if next(numbers) % 12 == 0 or not (waiting or running):
            waiting += [
                _Request(next(numbers) % 3_000 + 1, next(numbers) % 60 + 1)
                for _ in range(next(numbers) % 8 + 1)
            ]
        found.append(_step(waiting, running))
    return found


def _numbers() -> Iterator[int]:
    state = 1
    while True:
        state = (state * 1_103_515_245 + 12_345) % (1 << 31)
        yield state >> 8


def _step(waiting: list[_Request], running: list[_Request]) -> Batch:
    left, generating = BUDGET - len(running), len(running)
    for request in running:
        request.output -= 1
    running[:] = [request for request in running if request.output]
    prompts = tokens = 0
    while waiting and left > 0 and len(running) < MOST_RUNNING:
        first = waiting[0]
        chunk = min(left, first.prompt)
        first.prompt -= chunk
        prompts, tokens, left = prompts + 1, tokens + chunk, left - chunk
        if not first.prompt:
            running.append(waiting.pop(0))
    return Batch(prompts, tokens, generating)


def vllm(_: int, batch: Batch) -> str:
    """The name of vLLM's range."""
    return (
        f"execute_context_{batch.context_requests}({batch.context_tokens})"
        f"_generation_{batch.generation_requests}({batch.generation_requests})"
    )


def detailed(_: int, batch: Batch) -> str:
    """The name of a range with the detailed annotations."""
    sums = "sk1000sqsq2000sqsk3000"
    return (
        f"execute_{batch.context_tokens + batch.generation_requests}_context_{batch.context_requests}"
        f"(sq{batch.context_tokens}{sums})_generation_{batch.generation_requests}"
        f"(sq{batch.generation_requests}{sums})"
    )


def sglang(_: int, batch: Batch) -> str:
    """The name of SGLang's range; of a mixed step with the detailed annotations."""
    size = batch.context_requests + batch.generation_requests
    if not batch.generation_requests:
        return f"step[EXTEND bs={size} toks={batch.context_tokens}]"
    if not batch.context_requests:
        return f"step[DECODE bs={size}]"
    return (
        f"step[MIXED bs={size} c={batch.context_requests} g={batch.generation_requests} "
        f"c_sq={batch.context_tokens} c_sk=1000 c_sqsq=2000 c_sqsk=3000 "
        f"g_sq={batch.generation_requests} g_sk=1000 g_sqsq=2000 g_sqsk=3000]"
    )


def tensorrt(number: int, batch: Batch) -> str:
    """The name of TensorRT-LLM's range."""
    return (
        f"[Executor] _forward_step {number}: {batch.context_requests} ctx reqs, "
        f"{batch.context_tokens} ctx tokens, {batch.generation_requests} gen reqs"
    )


def server(
    batches: Sequence[Batch], name: Callable[[int, Batch], str] = detailed, *, slow: Container[int] = ()
) -> Program:
    """A server that runs these batches: one kernel a step, which the host then waits for.

    A range of SGLang lies within each step, and a step of the profiler around it. Between steps the host
    samples, schedules the next step, and does what the profiler does not see.

    Args:
        batches: What the steps process.
        name: The name of a step's range.
        slow: Numbers of steps whose kernel takes twice as long.
    """
    program = Program()
    for number, batch in enumerate(batches):
        with program.step(edge_ns=0):
            with program.annotation(name(number, batch)), program.annotation(sglang(number, batch)):
                program.kernel("gemm", batch.kernel_ns * (2 if number in slow else 1))
                program.synchronize("cudaStreamSynchronize", stream=7)
            with program.python(SAMPLE), program.op("aten::argmax"):
                program.wait(SAMPLE_NS)
            with program.python(SCHEDULE):
                program.wait(SCHEDULE_NS)
            program.wait(SILENT_NS)
    return program
