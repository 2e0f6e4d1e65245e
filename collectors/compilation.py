"""What `torch.compile` did in a measured process, as torch itself counts it, and when a workload is warm."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tracekit.runs.compilation import BACKWARD, WARM_UP
from tracekit.schema import C
from tracekit.workloads.base import COMPILE, EAGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEAST: Final = 3
"""Warm-up steps of what is not eager: TorchScript's executor and CUDA graphs look at one run or two first."""
MOST_MORE: Final = 20
"""Warm-up steps beyond those asked for; what still compiles then will go on."""
_KEPT: Final = 1 << 16
_BESIDE = re.compile(r"\n\s*Developer debug context:|\n\s*For more details")
_NUMBER = re.compile(r"^\d+/\d+: ")


class Compilations:
    """Follows what is compiled in this process from here on.

    Args:
        level: How the workload is run; anything but `compile` compiles nothing.
    """

    def __init__(self, level: str) -> None:
        self._level = level
        self._began: list[tuple[str, int]] = [(WARM_UP, 0)]
        self._seen = 0
        if level == COMPILE:
            from torch._dynamo import utils

            utils.set_compilation_metrics_limit(_KEPT)
            utils.clear_compilation_metrics()
            utils.counters.clear()

    def begin(self, part: str) -> None:
        """What is compiled from here on is compiled in this part."""
        self._began.append((part, self._count()))

    def warm(self, done: int, asked: int) -> bool:
        """Whether the steps to come are like each other; asked after each warm-up step.

        Args:
            done: Warm-up steps that were run.
            asked: How many were asked for.
        """
        before, self._seen = self._seen, self._count()
        if done < asked or self._level == EAGER:
            return done >= asked
        return done >= LEAST and (self._seen == before or done >= asked + MOST_MORE)

    def facts(self, warmup_ns: Sequence[int]) -> dict[str, Any] | None:
        """What a run keeps of it; None where nothing is compiled.

        Args:
            warmup_ns: Times of the warm-up steps, the first of which compiles.
        """
        if self._level != COMPILE:
            return None
        from torch._dynamo import utils

        every = utils.get_compilation_metrics()
        made = [_compilation(one, self._part(place)) for place, one in enumerate(every)]
        return {
            "first_call_ns": warmup_ns[0] if warmup_ns else None,
            "graphs": utils.counters["stats"]["unique_graphs"],
            "cached": utils.counters["inductor"]["fxgraph_cache_hit"],
            "breaks": _breaks(every, utils.counters["graph_break"]),
            "compilations": made,
        }

    def _count(self) -> int:
        if self._level != COMPILE:
            return 0
        from torch._dynamo import utils

        return len(utils.get_compilation_metrics())

    def _part(self, place: int) -> str:
        return next(part for part, first in reversed(self._began) if place >= first)


def _compilation(metrics: Any, part: str) -> dict[str, Any]:
    """One compilation: of a frame with its graph, or of the backward pass of one where that comes later.

    Older versions of torch tell less.
    """
    known = partial(getattr, metrics)
    forward = known("frame_key", None) is not None
    return {
        "id": _id(metrics),
        "function": known("co_name", "") if forward else BACKWARD,
        "part": part,
        C.DUR_NS: _duration_ns(metrics),
        "ops": (known("graph_op_count", None) or 0) if forward else None,
        "guards": (known("guard_count", None) or 0) if forward else None,
        "reason": guard(known("recompile_reason", None) or ""),
        "failed": explained(known("fail_reason", None) or "")[0],
    }


def _id(metrics: Any) -> str:
    """Torch's own `i/j`; where it has none, the frame and how often that was compiled before.

    Example:
        >>> from types import SimpleNamespace
        >>> _id(SimpleNamespace(frame_key="3", cache_size=1))
        '3/1'
    """
    own = getattr(metrics, "compile_id", None)
    return str(own) if own else f"{getattr(metrics, 'frame_key', 0)}/{getattr(metrics, 'cache_size', 0)}"


def _duration_ns(metrics: Any) -> int:
    """Torch counts whole microseconds; older versions seconds."""
    microseconds = getattr(metrics, "duration_us", None)
    if microseconds is not None:
        return int(microseconds) * 1000
    return round((getattr(metrics, "entire_frame_compile_time_s", None) or 0) * 1e6) * 1000


def _breaks(every: Iterable[Any], counted: Counter[str]) -> list[dict[str, Any]]:
    """Graph breaks by reason, with the functions they are in; the most met first."""
    functions: dict[str, set[str]] = {}
    for one in every:
        frame = _id(one).partition("/")[0]
        for reason in getattr(one, "restart_reasons", None) or ():
            functions.setdefault(explained(reason)[0], set()).add(f"{frame} {one.co_name}")
    met: Counter[tuple[str, str]] = Counter()
    for reason, times in counted.items():
        met[explained(reason)] += times
    return [
        {
            "reason": reason,
            "explanation": explanation,
            "functions": sorted({name.partition(" ")[2] for name in functions.get(reason, ())}),
            "frames": len(functions.get(reason, ())) or times,
            "times": times,
        }
        for (reason, explanation), times in met.most_common()
    ]


def explained(text: str) -> tuple[str, str]:
    r"""What torch says of a graph break in a line, and its explanation, without what is for its developers.

    Example:
        >>> explained("no print\n  Explanation: It prints.\n  Hint: Do not.\n  Developer debug context: x")
        ('no print', 'It prints. Do not.')
    """
    first, _, rest = _BESIDE.split(text.strip())[0].partition("\n")
    told = (line.strip().removeprefix("Explanation: ").removeprefix("Hint: ") for line in rest.splitlines())
    return first, " ".join(line for line in told if line)


def guard(reason: str) -> str:
    """The guard that failed, of what torch says of a recompilation: no place in the source, no advice.

    Example:
        >>> guard("0/1: tensor 'x' size mismatch at index 0. expected 3, actual 5")
        "tensor 'x' size mismatch at index 0. expected 3, actual 5"
        >>> guard("0/1: self.n == 1        # x = x * self.n  # model.py:8 in forward (HINT: ...)")
        'self.n == 1'
    """
    first = reason.strip().partition("\n")[0]
    return _NUMBER.sub("", first).partition("  # ")[0].strip()
