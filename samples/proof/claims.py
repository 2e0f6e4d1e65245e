"""Claims about tracekit's numbers, and the recipes by which each is judged.

A claim passes, fails, is not applicable to this machine, or is unknown, because a recipe that it needs ended
without what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import judges
from .judges import Judgement, Outcome, Recorded
from .processes import State

Judge = Callable[..., Judgement]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim as judged.

    Attributes:
        claim: Name of the claim.
        recipes: Recipes that it was judged by.
        outcome: Outcome.
        numbers: What was compared, with units in the names.
        reason: Why, unless the numbers say it.
    """

    claim: str
    recipes: tuple[str, ...]
    outcome: Outcome
    numbers: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim.

    Attributes:
        name: Its name.
        states: What it states, in one sentence.
        judge: Judges it from a `Recorded` for each of the recipes of a group.
        recipes: Groups of recipes; the claim is judged for each group. Empty: each recipe with a profile.
        runs: Whether each recipe must have left a run.
        failures: Whether a recipe that failed is judged as well.
    """

    name: str
    states: str
    judge: Judge
    recipes: tuple[tuple[str, ...], ...] = ()
    runs: bool = True
    failures: bool = False


def judge_all(recorded: Mapping[str, Recorded]) -> list[Verdict]:
    """Judge all claims, by the recipes with these names."""
    return [verdict for claim in CLAIMS for verdict in _verdicts(claim, recorded)]


def _verdicts(claim: Claim, recorded: Mapping[str, Recorded]) -> Iterator[Verdict]:
    profiled = ((name,) for name, one in recorded.items() if one.run and one.run.meta.profiled)
    for names in claim.recipes or tuple(profiled):
        found = [recorded.get(name) for name in names]
        outcome, numbers, reason = _precluded(claim, names, found) or _judged(claim, found)
        yield Verdict(claim=claim.name, recipes=names, outcome=outcome, numbers=numbers, reason=reason)


def _precluded(claim: Claim, names: tuple[str, ...], found: list[Recorded | None]) -> Judgement | None:
    for name, one in zip(names, found, strict=True):
        if one is None or one.ended.state is State.NOT_RUN:
            return Outcome.UNKNOWN, {}, f"{name} was not run"
        if one.ended.state is State.NOT_APPLICABLE:
            return Outcome.NOT_APPLICABLE, {}, f"{name}: {one.ended.reason}"
        if one.ended.state is not State.OK and not (claim.failures and one.ended.state is State.FAILED):
            return Outcome.UNKNOWN, {}, f"{name} {one.ended.state}: {one.ended.reason}"
        if claim.runs and one.run is None:
            return Outcome.UNKNOWN, {}, f"{name} left no run"
    return None


def _judged(claim: Claim, found: list[Recorded | None]) -> Judgement:
    try:
        return claim.judge(*found)
    except Exception as error:  # a run that cannot be read is a result of its own
        return Outcome.UNKNOWN, {}, f"it could not be judged: {type(error).__name__}: {error}"


def _each(*names: str) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names)


_MATMULS = _each("matmul-fp32", "matmul-tf32", "matmul-bf16")
_COPIES = _each("copy-pinned", "copy-pageable")
CLAIMS = (
    Claim(name="on_device", states="work of the GPU was recorded", judge=judges.on_device),
    Claim(name="linked", states="under 1% of the device rows have no launching call", judge=judges.linked),
    Claim(name="steady", states="all steps have the same number of kernels", judge=judges.steady),
    Claim(
        name="event_clock",
        states="step times by CUDA events are within 5% of wall time where the device is the bound",
        judge=judges.event_clock,
        recipes=_each("loop-attached"),
    ),
    Claim(
        name="attached",
        states="attaching tracekit slows steps outside its window by at most 5%",
        judge=judges.attached,
        recipes=(("loop", "loop-attached"),),
        runs=False,
    ),
    Claim(
        name="same_kernels",
        states="torch.profiler and nsys record as many kernels, with durations within 3%",
        judge=judges.same_kernels,
        recipes=(("bf16", "nsys"),),
    ),
    Claim(
        name="matmul_rate",
        states="large matrix products run at 50% to 100% of the listed peak, with exact FLOPs",
        judge=judges.matmul_rate,
        recipes=_MATMULS,
    ),
    Claim(
        name="copy_rate",
        states="large pinned copies run at 60% to 100% of the link, and no copy above it",
        judge=judges.copy_rate,
        recipes=_COPIES,
    ),
    Claim(
        name="copy_memory",
        states="copies are recorded as pinned or pageable as they are",
        judge=judges.copy_memory,
        recipes=_COPIES,
    ),
    Claim(
        name="nvml_memory",
        states="NVML's device memory is at least what torch reserved",
        judge=judges.nvml_memory,
        recipes=_each("nvml", "size-gpu"),
    ),
    Claim(
        name="spin",
        states="spins of known cycles take the time that CUDA events measure",
        judge=judges.spin,
        recipes=_each("pauses"),
    ),
    Claim(
        name="pause",
        states="idle intervals of the device are as long as the pauses of the host",
        judge=judges.pause,
        recipes=_each("pauses"),
    ),
    Claim(
        name="occupancy",
        states="resident blocks of `launch_config` give Kineto's occupancy within 1 point",
        judge=judges.occupancy,
        recipes=_each("size-test", "size-gpu", "bf16"),
    ),
    Claim(
        name="graph_nodes",
        states="each replay of a CUDA graph shows its kernels, the optimizer's included",
        judge=judges.graph_nodes,
        recipes=_each("cuda-graph", "captured-optimizer"),
    ),
    Claim(
        name="compiled",
        states="Triton kernels were recorded",
        judge=judges.compiled,
        recipes=_each("inductor"),
    ),
    Claim(
        name="every_rank",
        states="all ranks are in the run",
        judge=judges.every_rank,
        recipes=_each("two-ranks"),
    ),
    Claim(
        name="chosen_device",
        states="a GPU that the program chose itself is the one that the run names",
        judge=judges.chosen_device,
        recipes=_each("visible-devices"),
    ),
    Claim(
        name="mig_named",
        states="a MIG instance is named as one",
        judge=judges.mig_named,
        recipes=_each("mig"),
    ),
    Claim(
        name="failure_named",
        states="errors name their cause: out of memory, a failed assertion on the device",
        judge=judges.failure_named,
        recipes=_each("out-of-memory", "cuda-error"),
        runs=False,
        failures=True,
    ),
)
"""All claims; `docs/gpu.md` lists them."""
