"""Comparison of an eager and a compiled run: time, memory, kernels, launches, idle time and guards."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from tracekit.analysis import Column, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.diff import Diff
from tracekit.diff.breakdowns import Group
from tracekit.diff.step_time_breakdown import LAUNCH_BOUND
from tracekit.errors import UnusableInputError
from tracekit.runs.metrics import DEVICE_PEAK, HOST_PEAK, STEP_TIME
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from ..shared import common
from ..shared.common import Line, ints
from .findings import compare_findings
from .regions import GENERATED, ORIGIN, VARIANT, CompiledRun, read_compiled

VARYING = (
    "level",
    "backend",
    "shapes",
    "profiler_record_shapes",
    "profiler_profile_memory",
    "profiler_with_stack",
)
"""Fields that may differ: those changed by compiling, and recording options needed to observe it."""
MAX_GROUPS = 50
_ON_DEVICE = (
    "kernels",
    "Inductor kernels",
    "kernel time",
    "kernel launch calls",
    "CUDA graph replays",
)
"""Quantities that need a device."""
NEITHER = "neither run has compiled code: this is not a comparison of eager and compiled"
BASE_TOO = "the base has compiled code too: this compares two compiled programs"
NOT_THE_HEAD = "the base has compiled code and the head has not: swap the sides"


def compare(base: Run, head: Run) -> Result:
    """Compare an eager base with a compiled head."""
    parts = (read_compiled(base), read_compiled(head))
    if not any(part.any for part in parts):
        return Result(notes=(NEITHER,))
    diff = common.diff_runs(base, head, VARYING)
    if why := common.refusal_note(diff):
        return Result(notes=(why,))
    lines = [
        *common.metric_lines(diff.metrics),
        *_first_steps(base, head),
        *_count_per_step(base, head, parts),
        *_measure_idle(base, head, diff),
    ]
    tables = {"ratios": common.ratios(lines)}
    if any(_is_kernel(group) for group in diff.groups):
        tables["fusion"] = _list_fused(diff)
    return Result(tables, compare_findings(diff, parts[1]), _notes(parts))


def _notes(parts: tuple[CompiledRun, CompiledRun]) -> tuple[str, ...]:
    if parts[0].any:
        return (BASE_TOO,) if parts[1].any else (NOT_THE_HEAD,)
    return ()


def _first_steps(base: Run, head: Run) -> list[Line]:
    """First step of each warm-up, in which the head compiles; empty if neither was timed."""
    warmups = (run.meta.timings.warmup_ns if run.meta.timings else [] for run in (base, head))
    first = [warmup[0] if warmup else None for warmup in warmups]
    return [Line("first warm-up step", "ns", *first)] if any(first) else []


def _count_per_step(base: Run, head: Run, parts: tuple[CompiledRun, CompiledRun]) -> list[Line]:
    """Counts and sums in the profiled steps of each side, per step."""
    sides = [_per_step(run, part) for run, part in zip((base, head), parts, strict=True)]
    if not any(len(part.kernels) or len(part.replays) for part in parts):
        sides = [{name: side[name] for name in side if name not in _ON_DEVICE} for side in sides]
    units = {name: "ns" if name.endswith("time") else "count" for name in sides[0]}
    return [Line(f"{name}, per step", units[name], sides[0][name], sides[1][name]) for name in sides[0]]


def _per_step(run: Run, part: CompiledRun) -> dict[str, float]:
    steps, kernels = budget(run).steps, part.kernels
    on_device = {
        "kernels": len(kernels),
        "Inductor kernels": int((kernels[ORIGIN] == GENERATED).sum()),
        "kernel time": int(ints(kernels, C.DUR_NS).sum()),
        "kernel launch calls": int(kernels[C.LAUNCH_ROW].nunique()),
        "CUDA graph replays": len(part.replays),
    }
    on_host = {
        "compiled regions": len(part.regions),
        "recompiled regions": int((part.regions[VARIANT] > 0).sum()),
        "Inductor graphs": len(part.graphs),
        "guard checks": len(part.lookups),
        "guard check host time": int(ints(part.lookups, C.DUR_NS).sum()),
        "compilations": len(part.compilations),
        "compilation host time": int(ints(part.compilations, C.DUR_NS).sum()),
    }
    return {name: value / steps for name, value in (on_device | on_host).items()}


def _measure_idle(base: Run, head: Run, diff: Diff) -> list[Line]:
    """Device idle time of the compared steps, per step, and its launch-bound part."""
    if diff.compared is None or not diff.compared.on_device:
        return []
    a, b = (
        {name: length / diff.compared.steps for name, length in side.items() if "idle" in name}
        for side in common.time_by_activity(base, head)
    )
    lines = [Line("device idle time, per step", "ns", sum(a.values()), sum(b.values()))]
    if LAUNCH_BOUND in a:
        lines.append(Line("launch-bound idle time, per step", "ns", a[LAUNCH_BOUND], b[LAUNCH_BOUND]))
    return lines


def _is_kernel(group: Group) -> bool:
    return group.sort in {str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)}


def _list_fused(diff: Diff) -> pd.DataFrame:
    """The kernels that changed, largest difference first."""
    groups = [group for group in diff.groups if _is_kernel(group)][:MAX_GROUPS]
    rows = [
        {
            "path": " > ".join(group.path),
            "base_kernels": group.a.count,
            "head_kernels": group.b.count,
            "base_ns": group.a.total_ns,
            "head_ns": group.b.total_ns,
            "delta_ns": group.terms.delta,
            "base_name": group.name_a,
            "head_name": group.name_b,
            "rung": group.match_level,
        }
        for group in groups
    ]
    return pd.DataFrame(rows, columns=[column.name for column in _FUSION])


_RATIOS = (
    Column("quantity", "prose", "measured quantity"),
    Column("unit", "", "ns, bytes or count"),
    Column("base", "", "value of the eager base; missing if unknown", unit_in="unit"),
    Column("head", "", "value of the compiled head; missing if unknown", unit_in="unit"),
    Column("ratio", "×", "head over base; missing if the base is 0 or unknown"),
)
_FUSION = (
    Column("path", "", "ops around all of them, outermost first"),
    Column("base_kernels", "count", "kernels of the base in the compared steps"),
    Column("head_kernels", "count", "kernels of the head that replace them"),
    Column("base_ns", "ns", "Σ of durations on the base"),
    Column("head_ns", "ns", "Σ of durations on the head"),
    Column("delta_ns", "ns", "head minus base"),
    Column("base_name", "", "canonical name of the base's longest kernel; empty without one"),
    Column("head_name", "", "canonical name of the head's longest kernel; empty without one"),
    Column("rung", "", "how they were matched; empty if only one side has them"),
)
TABLES = (
    TableSpec("ratios", "Eager base and compiled head", _RATIOS),
    TableSpec("fusion", f"Changed kernels, the {MAX_GROUPS} largest differences", _FUSION),
)


GEOMEAN = "geometric mean"
_METRICS = (STEP_TIME, DEVICE_PEAK, HOST_PEAK)


def geomeans(pairs: Iterable[tuple[Run, Run]]) -> pd.DataFrame:
    """Ratios of pairs of an eager and a compiled run, as in TorchBench's Fig. 3 and 4.

    Args:
        pairs: The eager run and the compiled run of each workload.

    Returns:
        One row per pair, then the geometric mean of each column over the pairs that have it: `speedup` (step
        time of the eager run over the compiled one's: above 1 is faster) and, head over base, the ratios of
        the peaks of device and host memory. Missing if a run of a pair did not measure it.

    Raises:
        UnusableInputError: The runs of a pair are not comparable.

    Example:
        >>> import tracekit
        >>> runs = tracekit.open("eager"), tracekit.open("compiled")  # doctest: +SKIP
        >>> geomeans([runs])["speedup"]  # doctest: +SKIP
    """
    rows = [_row(base, head) for base, head in pairs]
    table = pd.DataFrame(rows, columns=["pair", "speedup", DEVICE_PEAK, HOST_PEAK])
    values = table.drop(columns="pair").astype("float64")
    means = {str(name): _geomean(column.dropna()) for name, column in values.items()}
    return pd.concat([table, pd.DataFrame([{"pair": GEOMEAN, **means}])], ignore_index=True)


def _row(base: Run, head: Run) -> dict[str, object]:
    diff = common.diff_runs(base, head, VARYING)
    name = _name(head)
    if why := common.refusal_note(diff):
        raise UnusableInputError(f"{name}: {why}; leave the pair out")
    time, device, host = (_ratio(diff, metric) for metric in _METRICS)
    return {"pair": name, "speedup": 1 / time if time else time, DEVICE_PEAK: device, HOST_PEAK: host}


def _name(run: Run) -> str:
    """Workload, mode and device of a run, or its id if it is an imported trace."""
    values = [run.meta.fingerprint.get(field) for field in ("workload", "mode", "device")]
    return " ".join(str(value) for value in values if value) if values[0] else run.id


def _ratio(diff: Diff, name: str) -> float:
    return next(
        (metric.b / metric.a for metric in diff.metrics if metric.name == name and metric.a and metric.b),
        np.nan,
    )


def _geomean(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios).mean())) if len(ratios) else float("nan")
