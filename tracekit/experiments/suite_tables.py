"""Tables of the suite, one function each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracekit.analysis import Column
from tracekit.experiments import suite_plan
from tracekit.experiments.suite_plan import (
    CHARACTERIZATION,
    FEW,
    FIXED,
    GEOMEAN,
    MIN_RUNS,
    MODES,
    OVERALL,
    RATIOS,
    SuiteRows,
    Table,
    geomean,
    ratio,
    runs_are_apart,
    way,
    why,
    with_reasons,
)
from tracekit.experiments.sweep_table import COLUMNS, COMPILE_COLUMNS, DEVICE_COLUMNS, NO_GPU, Row
from tracekit.workloads.base import COMPILE

_SWEEP = {column.name: column for column in COLUMNS}
_WHAT = (_SWEEP["workload"], _SWEEP["mode"])
_APART = Column(
    "apart", "", "whether all runs of one side are faster than all of the other; if not, it may be noise"
)


def _measured(row: Row, columns: Sequence[Column], **values: Any) -> dict[str, Any]:
    """Return values of a row of the sweep, and others; columns of the device have reasons of their own."""
    on_device = dict.fromkeys(DEVICE_COLUMNS, why(row, device=True))
    return with_reasons({**row.flat(), **values}, columns, why(row), on_device)


_RATIOS = ("speedup", "host_ratio", "device_ratio")
_PUBLISHED_RATIOS = tuple(f"published_{name}" for name in _RATIOS)
COMPILED_COLUMNS = (
    *_WHAT,
    Column("level", "", "level compared with eager; compiled by Inductor unless stated otherwise"),
    Column("eager_ns", "ns", "mean unprofiled step, eager"),
    Column("compiled_ns", "ns", "mean unprofiled step, at this level"),
    Column("speedup", "×", "eager over compiled step time"),
    _APART,
    Column("host_ratio", "×", "compiled over eager peak memory of the host"),
    Column("device_ratio", "×", "compiled over eager peak of the device's allocator"),
    *(_SWEEP[name] for name in COMPILE_COLUMNS),
    Column("published_speedup", "×", "geometric mean over TorchBench's models"),
    Column("published_host_ratio", "×", "same for TorchBench's models"),
    Column("published_device_ratio", "×", "same for TorchBench's models"),
)


def compile_table(suite: SuiteRows) -> Table:
    """Return a row per workload, mode and level, and geometric means per mode and level."""
    ways = suite.ways()
    rows = [_pair(suite, row, level) for level in ways for row in suite.eager()]
    return Table(
        name="compiled",
        title="Eager vs. compiled",
        definition=(
            "Above 1×, the compiled program is faster, or uses more memory. Step times exclude compilation; "
            "the host's peak memory includes it. Geometric means are per mode and level."
        ),
        source=f"{suite_plan.TORCHBENCH}, Fig. 3 and 4",
        columns=COMPILED_COLUMNS,
        rows=(*rows, *(_mean(mode, level, rows) for level in ways for mode in MODES)),
    )


def _pair(suite: SuiteRows, eager: Row, level: str) -> dict[str, Any]:
    other = suite.at(eager, level)
    values: dict[str, Any] = {
        "workload": eager.settings.workload,
        "mode": eager.settings.mode,
        "level": level,
        "eager_ns": eager.step_ns,
    }
    reasons = {"eager_ns": why(eager), **dict.fromkeys(_PUBLISHED_RATIOS, "see geomean")}
    if other is None:
        measured = any(suite.at(row, level) for row in suite.eager())
        missing = suite_plan.why_left_out(eager.settings.workload, level, measured=measured)
        return with_reasons(values, COMPILED_COLUMNS, missing, reasons)
    values |= {
        "compiled_ns": other.step_ns,
        "speedup": ratio(eager.step_ns, other.step_ns),
        "apart": runs_are_apart(eager, other),
        **{name: getattr(other, name) for name in COMPILE_COLUMNS},
        "host_ratio": ratio(other.host_peak_bytes, eager.host_peak_bytes),
        "device_ratio": ratio(other.allocated_peak_bytes, eager.allocated_peak_bytes),
    }
    if other.n:
        reasons |= {"device_ratio": why(other, device=True), "apart": FEW}
        reasons |= dict.fromkeys(COMPILE_COLUMNS, "available only for torch.compile")
    return with_reasons(values, COMPILED_COLUMNS, why(eager if other.n else other), reasons)


def _mean(mode: str, level: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    group = [row for row in rows if (row["mode"], row["level"]) == (mode, level)]
    values: dict[str, Any] = {"workload": GEOMEAN, "mode": mode, "level": level}
    reasons = dict.fromkeys(_PUBLISHED_RATIOS, "published for Inductor only")
    for name in _RATIOS:
        values[name] = geomean(row[name] for row in group)
        reasons[name] = next(filter(None, (row["reasons"].get(name) for row in group)), "no such mode")
    if level == COMPILE:
        values |= dict(zip(_PUBLISHED_RATIOS, suite_plan.COMPILED[mode], strict=True))
    return with_reasons(values, COMPILED_COLUMNS, RATIOS, reasons)


CURVE_COLUMNS = (
    _SWEEP["mode"],
    _SWEEP["level"],
    Column("resolution", "", "image height and width"),
    _SWEEP["batch_size"],
    Column("outcome", "", "outcome of the measurement"),
    Column("step_ns", "ns", "mean unprofiled step"),
    Column("sample_ns", "ns", "step time over batch size"),
    Column("host_peak_bytes", "bytes", "peak resident memory of the process"),
    Column("allocated_peak_bytes", "bytes", "peak allocated memory"),
    Column("used_peak_bytes", "bytes", "peak memory in use on the device, from NVML, as in the study"),
    Column("utilization", "share", "mean GPU utilization from NVML, as in the study"),
    Column("active_share", "share", "share of the profiled steps with a kernel running"),
)


def curve_table(suite: SuiteRows) -> Table:
    """Return a row per mode, level, resolution and batch size."""
    return Table(
        name="curves",
        title="ResNet-50 over resolution and batch size",
        definition=(
            "Images of 3 channels in 20 classes; SGD. Median step time of the suite's runs; the study "
            "averaged 10 runs and published only plots, so there are no published numbers."
        ),
        source=f"{suite_plan.PUBLISHED_CURVES}, Fig. 5 to 11",
        columns=CURVE_COLUMNS,
        rows=tuple(
            _measured(row, CURVE_COLUMNS, sample_ns=ratio(row.step_ns, row.settings.batch_size))
            for row in suite.part(suite_plan.CURVES)
        ),
    )


EPOCH_COLUMNS = (
    Column("device", "", "device"),
    Column("threads", "", "allowed intra-op CPU threads"),
    Column("threads_used", "count", "threads used"),
    _SWEEP["batch_size"],
    Column("step_ns", "ns", "mean unprofiled step"),
    Column("epoch_ns", "ns", "step time times the number of steps for 60,000 samples"),
    Column("published_ns", "ns", "time on the report's machine"),
)


def epoch_table(suite: SuiteRows) -> Table:
    """Return a row per device and number of threads in the report."""
    rows = suite.part(suite_plan.THREADS)
    values = {(row.settings.device, str(row.settings.threads or "all")): row for row in rows}
    return Table(
        name="epochs",
        title="One epoch of MNIST",
        definition=(
            "An epoch is computed from the mean training step on random data, not run. Data loading and "
            "evaluation are excluded; the report does not state its batch size."
        ),
        source=f"{suite_plan.REPORT}, Table 2",
        columns=EPOCH_COLUMNS,
        rows=tuple(_epoch_row(key, values.get(key)) for key in suite_plan.EPOCH_S),
    )


def _epoch_row(key: tuple[str, str], row: Row | None) -> dict[str, Any]:
    device, threads = key
    values: dict[str, Any] = {"device": device, "threads": threads}
    values["published_ns"] = round(suite_plan.EPOCH_S[key] * 1e9)
    if row is not None:
        batch = row.settings.batch_size
        values |= {"batch_size": batch, "threads_used": row.threads_used, "step_ns": row.step_ns}
        if row.step_ns is not None:
            values["epoch_ns"] = row.step_ns * math.ceil(suite_plan.EPOCH_SAMPLES / batch)
    reason = NO_GPU if row is None and device == "cuda" else why(row)
    return with_reasons(values, EPOCH_COLUMNS, reason)


_PEAKS = ("host_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "used_peak_bytes")
MEMORY_COLUMNS = (
    *_WHAT,
    _SWEEP["level"],
    Column("host_peak_bytes", "bytes", "peak resident memory of the process"),
    *(_SWEEP[name] for name in _PEAKS[1:]),
)


def memory_table(suite: SuiteRows) -> Table:
    """Return a row per workload, mode and level, and geometric means per mode and level."""
    group = suite.part(CHARACTERIZATION)
    levels = dict.fromkeys(way(row.settings) for row in group)
    return Table(
        name="memory",
        title="Memory of the host and the device",
        definition=(
            "Peaks; the host's without a profiler, including compilation. Geometric means by mode and level."
        ),
        source=f"{suite_plan.TORCHBENCH}, Fig. 3 and 4",
        columns=MEMORY_COLUMNS,
        rows=(
            *(_measured(row, MEMORY_COLUMNS, level=way(row.settings)) for row in group),
            *(_mean_memory(group, mode, level) for level in levels for mode in MODES),
        ),
    )


def _mean_memory(group: Sequence[Row], mode: str, level: str) -> dict[str, Any]:
    of = [row for row in group if (row.settings.mode, way(row.settings)) == (mode, level)]
    values: dict[str, Any] = {"workload": GEOMEAN, "mode": mode, "level": level}
    means = {name: geomean(getattr(row, name) for row in of) for name in _PEAKS}
    values |= {name: None if value is None else round(value) for name, value in means.items()}
    first = of[0] if of else None
    on_device = dict.fromkeys(DEVICE_COLUMNS, why(first, device=True))
    return with_reasons(values, MEMORY_COLUMNS, why(first), on_device)


FOREACH, DROPPED = "zero_grad: zero to foreach", "zero_grad: zero to default"
SCALAR, OFFLOADED = "scalar copy: made on the host to made on the device", "offload: parameters to none"
_PUBLISHED_SPEEDUP = {
    SCALAR: {
        "published_speedup": suite_plan.FIXES["scalar copy"],
        "remark": "27× is for one function, not for the step",
    },
    OFFLOADED: {"published_speedup": suite_plan.FIXES["offload"], "remark": "for the model pig2"},
}
SPEEDUP_COLUMNS = (
    Column("change", "", "change"),
    *_WHAT,
    Column("before_ns", "ns", "mean unprofiled step before"),
    Column("after_ns", "ns", "mean unprofiled step after"),
    Column("speedup", "×", "before over after; above 1× is faster"),
    _APART,
    Column("published_speedup", "×", "speedup published for the change"),
    Column("remark", "", "scope of the published number"),
)
_UNPUBLISHED = "none: not published"


def speedup_table(suite: SuiteRows) -> Table:
    """Return a row per change and workload, and the geometric mean of each change."""
    rows: list[dict[str, Any]] = []
    for change, pairs in _changes(suite).items():
        group = [_speedup_row(change, before, after) for before, after in pairs]
        rows += group
        if len(group) > 1:
            rows.append(_mean_speedup(change, group))
    return Table(
        name="speedups",
        title="Speedups of single changes",
        definition=(
            "Step times without a profiler. Sides are apart if the mean steps of all runs of one are below "
            f"all of the other, with {MIN_RUNS} runs each or more: by chance in at most 3% of cases, unless "
            "the machine drifts, as one side is measured after the other; `tracekit ab` alternates them."
        ),
        source=f"{suite_plan.TORCHBENCH}, Fig. 6",
        columns=SPEEDUP_COLUMNS,
        rows=tuple(rows),
    )


def _changes(suite: SuiteRows) -> dict[str, list[tuple[Row, Row | None]]]:
    zeroed = [row for row in suite.part(suite_plan.ZERO_GRAD) if row.settings.zero_grad == "zero"]
    fixed = ((row, suite.like(row, workload=f"{row.settings.workload}{FIXED}")) for row in suite.eager())
    return {
        FOREACH: [(row, suite.like(row, zero_grad="foreach")) for row in zeroed],
        DROPPED: [(row, suite.like(row, zero_grad="default")) for row in zeroed],
        SCALAR: [(row, after) for row, after in fixed if after is not None],
        OFFLOADED: [(row, suite.like(row, offload="none")) for row in suite.part(suite_plan.OFFLOAD)],
    }


def _speedup_row(change: str, before: Row, after: Row | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "change": change,
        "workload": before.settings.workload,
        "mode": before.settings.mode,
        "before_ns": before.step_ns,
        **_PUBLISHED_SPEEDUP.get(change, {}),
    }
    if after is not None:
        values |= {
            "after_ns": after.step_ns,
            "speedup": ratio(before.step_ns, after.step_ns),
            "apart": runs_are_apart(before, after),
        }
    missing = why(before) if before.step_ns is None else why(after)
    reasons = {
        "before_ns": why(before),
        "after_ns": why(after),
        "speedup": missing,
        "apart": FEW if before.n and after and after.n else missing,
    }
    return with_reasons(values, SPEEDUP_COLUMNS, _UNPUBLISHED, reasons)


def _mean_speedup(change: str, group: list[dict[str, Any]]) -> dict[str, Any]:
    values = {
        "change": change,
        "workload": GEOMEAN,
        "speedup": geomean(row["speedup"] for row in group),
        "mode": ", ".join(dict.fromkeys(row["mode"] for row in group)),
        **_PUBLISHED_SPEEDUP.get(change, {}),
    }
    reasons = {**dict.fromkeys(("before_ns", "after_ns", "apart"), RATIOS), "speedup": "not measured"}
    return with_reasons(values, SPEEDUP_COLUMNS, _UNPUBLISHED, reasons)


SHARES = ("active_share", "movement_share", "idle_share")
WORKLOAD_COLUMNS = (
    _SWEEP["workload"],
    Column("domain", "", "application domain"),
    *(_SWEEP[name] for name in ("mode", "batch_size", "resolution")),
    Column("active_share", "share", "share with a kernel running"),
    *(_SWEEP[name] for name in SHARES[1:]),
    Column("step_ns", "ns", "mean unprofiled step"),
    _SWEEP["samples_per_second"],
    Column("run_id", "id", "run with the mean unprofiled step"),
)


def workload_table(suite: SuiteRows) -> Table:
    """Return a row per workload and mode."""
    return Table(
        name="workloads",
        title="Active, movement and idle time by workload",
        definition="Shares of the profiled steps on the busiest device; they sum to 1. Eager mode.",
        source=f"{suite_plan.TORCHBENCH}, Fig. 1 and 2",
        columns=WORKLOAD_COLUMNS,
        rows=tuple(
            _measured(row, WORKLOAD_COLUMNS, domain=suite.domains[row.settings.workload])
            for row in suite.eager()
        ),
    )


DOMAIN_COLUMNS = (
    Column("domain", "", "domain of the workloads"),
    _SWEEP["mode"],
    Column("workloads", "count", "workloads with a recorded device, or all if there are none"),
    Column("active_share", "share", "mean share with a kernel running"),
    Column("published_active", "share", "same for TorchBench's models, on an A100"),
    Column("movement_share", "share", "mean share with a copy but no kernel running"),
    Column("published_movement", "share", "same for TorchBench's models"),
    Column("idle_share", "share", "mean share with nothing running"),
    Column("published_idle", "share", "same for TorchBench's models"),
)
_PUBLISHED = ("published_active", "published_movement", "published_idle")


def domain_table(suite: SuiteRows) -> Table:
    """Return a row per domain and mode, and one over all workloads."""
    eager = [row for row in suite.eager() if not row.settings.workload.endswith(FIXED)]
    domains = list(dict.fromkeys(suite.domains[row.settings.workload] for row in eager))
    rows = []
    for mode in MODES:
        group = [row for row in eager if row.settings.mode == mode]
        for domain in domains:
            of = [row for row in group if suite.domains[row.settings.workload] == domain]
            rows.append(_row(domain, mode, of))
        rows.append(_row(OVERALL, mode, group))
    return Table(
        name="domains",
        title="Active, movement and idle time by domain",
        definition=(
            "Mean over the workloads of the shares of the profiled steps, excluding fixed variants. Batch "
            "sizes are those of the suite's size; TorchBench doubled the batch size of inference to the best "
            "GPU utilization."
        ),
        source=f"{suite_plan.TORCHBENCH}, Table 2",
        columns=DOMAIN_COLUMNS,
        rows=tuple(rows),
    )


def _row(domain: str, mode: str, group: list[Row]) -> dict[str, Any]:
    recorded = [row for row in group if row.active_share is not None]
    values: dict[str, Any] = {"domain": domain, "mode": mode, "workloads": len(recorded or group)}
    values |= {name: suite_plan.mean(getattr(row, name) for row in recorded) for name in SHARES}
    # Over all its models, the study states only the active share.
    published = suite_plan.PUBLISHED_DOMAINS.get((domain, mode), ())
    values |= dict(zip(_PUBLISHED, published, strict=False))
    unpublished = _UNPUBLISHED if domain == OVERALL else "not in the study"
    on_device = dict.fromkeys(SHARES, why(group[0], device=True) if group else "no such mode")
    return with_reasons(values, DOMAIN_COLUMNS, unpublished, on_device)


TABLES = (domain_table, workload_table, compile_table, memory_table, speedup_table, curve_table, epoch_table)
