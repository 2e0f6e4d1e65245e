"""Record compilations by `torch.compile` in this process, and decide when a workload is warm."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tracekit.ingest.artifacts import SETTINGS
from tracekit.runs.compilation import BACKWARD, WARM_UP
from tracekit.schema import C
from tracekit.workloads.base import COMPILE, EAGER
from tracekit.workloads.options import RecordingOptions

TORCH_TRACE: Final = "TORCH_TRACE"
MIN_WARMUP: Final = 3
"""Warm-up steps if not eager: TorchScript's executor and CUDA graphs optimize after a run or two."""
MAX_EXTRA_WARMUP: Final = 20
"""Warm-up steps beyond the requested ones while steps still compile."""
_METRICS_LIMIT: Final = 1 << 16
_DEVELOPER_NOTES = re.compile(r"\n\s*Developer debug context:|\n\s*For more details")
_COMPILE_ID = re.compile(r"^\d+/\d+: ")


def artifact_environment(
    options: RecordingOptions, directory: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a process whose compiled kernels are described in a folder, if asked for.

    Inductor's cache is a new one: code from it would come with the source lines of an earlier program.

    Args:
        options: Options of the recording.
        directory: Folder of the recording; a folder that the user chose with `TORCH_TRACE` is used instead.
        environment: Environment of the process otherwise.
    """
    if not options.compile_artifacts:
        return dict(environment)
    place = directory.resolve()
    return {
        TORCH_TRACE: str(place / "torch_trace"),
        **SETTINGS,
        **environment,
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
    }


def artifact_folder(
    options: RecordingOptions, directory: Path, environment: Mapping[str, str]
) -> Path | None:
    """Return the folder of `artifact_environment`, with the same arguments; None if not asked for."""
    variables = artifact_environment(options, directory, environment)
    return Path(variables[TORCH_TRACE]) if options.compile_artifacts else None


class Compilations:
    """Compilations in this process from now on; at other levels than `compile` there are none."""

    def __init__(self, level: str) -> None:
        self._level = level
        self._parts: list[tuple[str, int]] = [(WARM_UP, 0)]
        self._seen = 0
        if level == COMPILE:
            from torch._dynamo import utils

            utils.set_compilation_metrics_limit(_METRICS_LIMIT)
            utils.clear_compilation_metrics()
            utils.counters.clear()

    def begin_part(self, part: str) -> None:
        """Assign compilations from now on to this part."""
        self._parts.append((part, self._count()))

    def is_warm(self, done: int, requested: int) -> bool:
        """Return whether warm-up is complete after the steps done; called before each warm-up step."""
        before, self._seen = self._seen, self._count()
        if done < requested or self._level == EAGER:
            return done >= requested
        return done >= MIN_WARMUP and (self._seen == before or done >= requested + MAX_EXTRA_WARMUP)

    def facts(self, warmup_ns: Sequence[int]) -> dict[str, Any] | None:
        """Return the compilations as `tracekit.runs.compilation` reads them; None at other levels.

        Args:
            warmup_ns: Durations of the warm-up steps; the first one compiles.
        """
        if self._level != COMPILE:
            return None
        from torch._dynamo import utils

        metrics = utils.get_compilation_metrics()
        return {
            "first_call_ns": warmup_ns[0] if warmup_ns else None,
            "graphs": utils.counters["stats"]["unique_graphs"],
            "cached": utils.counters["inductor"]["fxgraph_cache_hit"],
            "breaks": _breaks(metrics, utils.counters["graph_break"]),
            "compilations": [_describe(item, self._part(index)) for index, item in enumerate(metrics)],
        }

    def _count(self) -> int:
        if self._level != COMPILE:
            return 0
        from torch._dynamo import utils

        return len(utils.get_compilation_metrics())

    def _part(self, index: int) -> str:
        return next(part for part, first in reversed(self._parts) if index >= first)


def _describe(metrics: Any, part: str) -> dict[str, Any]:
    """Return one compilation: of a frame, or of its backward pass if that is compiled later."""
    field = partial(getattr, metrics)  # with a default: older versions of torch lack some fields
    forward = field("frame_key", None) is not None
    return {
        "id": _id(metrics),
        "function": field("co_name", "") if forward else BACKWARD,
        "part": part,
        C.DUR_NS: _duration_ns(metrics),
        "ops": (field("graph_op_count", None) or 0) if forward else None,
        "guards": (field("guard_count", None) or 0) if forward else None,
        "reason": describe_guard(field("recompile_reason", None) or ""),
        "failed": _explain_break(field("fail_reason", None) or "")[0],
    }


def _id(metrics: Any) -> str:
    """Return torch's own `i/j`, or the frame and how often it was compiled before."""
    frame = f"{getattr(metrics, 'frame_key', 0)}/{getattr(metrics, 'cache_size', 0)}"
    return str(getattr(metrics, "compile_id", None) or frame)


def _duration_ns(metrics: Any) -> int:
    """Return the duration, which torch has in whole microseconds, and older versions in seconds."""
    microseconds = getattr(metrics, "duration_us", None)
    if microseconds is not None:
        return int(microseconds) * 1000
    return round((getattr(metrics, "entire_frame_compile_time_s", None) or 0) * 1e6) * 1000


def _breaks(metrics: Iterable[Any], counts: Counter[str]) -> list[dict[str, Any]]:
    """Return graph breaks by reason with their functions, the most frequent first."""
    functions: dict[str, set[str]] = {}
    for compilation in metrics:
        frame = _id(compilation).partition("/")[0]
        for reason in getattr(compilation, "restart_reasons", None) or ():
            functions.setdefault(_explain_break(reason)[0], set()).add(f"{frame} {compilation.co_name}")
    breaks: Counter[tuple[str, str]] = Counter()
    for reason, times in counts.items():
        breaks[_explain_break(reason)] += times
    return [
        {
            "reason": reason,
            "explanation": explanation,
            "functions": sorted({name.partition(" ")[2] for name in functions.get(reason, ())}),
            "frames": len(functions.get(reason, ())) or times,
            "times": times,
        }
        for (reason, explanation), times in breaks.most_common()
    ]


def _explain_break(text: str) -> tuple[str, str]:
    """Split torch's message of a graph break into its reason and its explanation with hints."""
    first, _, rest = _DEVELOPER_NOTES.split(text.strip())[0].partition("\n")
    lines = (line.strip().removeprefix("Explanation: ").removeprefix("Hint: ") for line in rest.splitlines())
    return first, " ".join(line for line in lines if line)


def describe_guard(reason: str) -> str:
    """Return the failed guard in torch's reason of a recompilation, without source location and advice."""
    first = reason.strip().partition("\n")[0]
    return _COMPILE_ID.sub("", first).partition("  # ")[0].strip()
