"""Tables of the suite, one function each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tracekit.analysis import Column
from tracekit.experiments import suite_plan
from tracekit.experiments import sweep_table as sweep
from tracekit.experiments.suite_plan import (
    CHARACTERIZATION,
    CURVES,
    EPOCH_SAMPLES,
    FEW,
    FIXED,
    GEOMEAN,
    MIN_RUNS,
    MODES,
    OFFLOAD,
    OVERALL,
    RATIOS,
    THREADS,
    ZERO_GRAD,
    SuiteRows,
    Table,
    geomean,
    mean,
    ratio,
    runs_are_apart,
    way,
    why,
    why_left_out,
    with_reasons,
)
from tracekit.experiments.sweep_table import NO_GPU, Row
from tracekit.workloads.base import COMPILE

_APART = Column(
    "apart", "", "whether all runs of one side are faster than all of the other; if not, it may be noise"
)
COMPILED_COLUMNS = (
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("level", "", "level compared with eager; compiled by Inductor unless stated otherwise"),
    Column("eager_ns", "ns", "median unprofiled step, eager"),
    Column("compiled_ns", "ns", "median unprofiled step, at this level"),
    Column("speedup", "×", "eager over compiled step time"),
    _APART,
    Column("host_ratio", "×", "compiled over eager peak memory of the host"),
    Column("device_ratio", "×", "compiled over eager peak of the device's allocator"),
    *(column for column in sweep.COLUMNS if column.name in sweep.COMPILE_COLUMNS),
    Column("published_speedup", "×", "geometric mean over TorchBench's models"),
    Column("published_host_ratio", "×", "same for TorchBench's models"),
    Column("published_device_ratio", "×", "same for TorchBench's models"),
)
_RATIOS = ("speedup", "host_ratio", "device_ratio")


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
    if other is not None:
        values |= {
            "compiled_ns": other.step_ns,
            "speedup": ratio(eager.step_ns, other.step_ns),
            "apart": runs_are_apart(eager, other),
            **{name: getattr(other, name) for name in sweep.COMPILE_COLUMNS},
            "host_ratio": ratio(other.host_peak_bytes, eager.host_peak_bytes),
            "device_ratio": ratio(other.allocated_peak_bytes, eager.allocated_peak_bytes),
        }
    return with_reasons(values, COMPILED_COLUMNS, _reasons(suite, eager, other, level))


def _reasons(suite: SuiteRows, eager: Row, other: Row | None, level: str) -> dict[str, str]:
    if other is None:
        measured = any(suite.at(row, level) for row in suite.eager())
        reason = why_left_out(eager.settings.workload, level, measured=measured)
    else:
        reason = why(other if not other.n else eager)
    reasons = {column.name: reason for column in COMPILED_COLUMNS} | {"eager_ns": why(eager)}
    reasons |= {
        column.name: "see geomean" for column in COMPILED_COLUMNS if column.name.startswith("published")
    }
    if other is not None and other.n:
        reasons |= {"device_ratio": why(other, device=True), "apart": FEW}
        reasons |= dict.fromkeys(sweep.COMPILE_COLUMNS, "available only for torch.compile")
    return reasons


def _mean(mode: str, level: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    group = [row for row in rows if (row["mode"], row["level"]) == (mode, level)]
    values: dict[str, Any] = {"workload": GEOMEAN, "mode": mode, "level": level}
    values |= {name: geomean(row[name] for row in group) for name in _RATIOS}
    if level == COMPILE:
        values |= {
            "published_speedup": suite_plan.COMPILED_SPEEDUP[mode],
            "published_host_ratio": suite_plan.COMPILED_HOST[mode],
            "published_device_ratio": suite_plan.COMPILED_DEVICE[mode],
        }
    reasons: dict[str, str] = {
        name: next((row["reasons"][name] for row in group if name in row["reasons"]), "no such mode")
        for name in _RATIOS
    }
    reasons |= dict.fromkeys(("eager_ns", "compiled_ns", "apart", *sweep.COMPILE_COLUMNS), RATIOS)
    published_too = [column.name for column in COMPILED_COLUMNS if column.name.startswith("published")]
    return with_reasons(
        values, COMPILED_COLUMNS, reasons | dict.fromkeys(published_too, "published for Inductor only")
    )


DEVICE = ("allocated_peak_bytes", "used_peak_bytes", "utilization", "active_share")
CURVE_COLUMNS = (
    Column("mode", "", "train or infer"),
    Column("level", "", "execution mode"),
    Column("resolution", "", "image height and width"),
    Column("batch_size", "", "samples per step"),
    Column("outcome", "", "outcome of the measurement"),
    Column("step_ns", "ns", "median unprofiled step"),
    Column("sample_ns", "ns", "step time over batch size"),
    Column("host_peak_bytes", "bytes", "peak resident memory of the process"),
    Column(DEVICE[0], "bytes", "peak allocated memory"),
    Column(DEVICE[1], "bytes", "peak memory in use on the device, from NVML, as in the study"),
    Column(DEVICE[2], "share", "mean GPU utilization from NVML, as in the study"),
    Column(DEVICE[3], "share", "share of the profiled steps with a kernel running"),
)


def curve_table(suite: SuiteRows) -> Table:
    """Return a row per mode, level, resolution and batch size."""
    rows = []
    for row in suite.part(CURVES):
        values = {**row.flat(), "sample_ns": ratio(row.step_ns, row.settings.batch_size)}
        reasons = dict.fromkeys((column.name for column in CURVE_COLUMNS), why(row))
        reasons |= dict.fromkeys(DEVICE, why(row, device=True))
        rows.append(with_reasons(values, CURVE_COLUMNS, reasons))
    return Table(
        name="curves",
        title="ResNet-50 over resolution and batch size",
        definition=(
            "Images of 3 channels in 20 classes; SGD. Median step time of the suite's runs; the study "
            "averaged 10 runs and published only plots, so there are no published numbers."
        ),
        source=f"{suite_plan.PUBLISHED_CURVES}, Fig. 5 to 11",
        columns=CURVE_COLUMNS,
        rows=tuple(rows),
    )


EPOCH_COLUMNS = (
    Column("device", "", "device"),
    Column("threads", "", "allowed intra-op CPU threads"),
    Column("threads_used", "count", "threads used"),
    Column("batch_size", "", "samples per step"),
    Column("step_ns", "ns", "median unprofiled step"),
    Column("epoch_ns", "ns", "step time times the number of steps for 60,000 samples"),
    Column("published_ns", "ns", "time on the report's machine"),
)


def epoch_table(suite: SuiteRows) -> Table:
    """Return a row per device and number of threads in the report."""
    values = {(row.settings.device, str(row.settings.threads or "all")): row for row in suite.part(THREADS)}
    return Table(
        name="epochs",
        title="One epoch of MNIST",
        definition=(
            "An epoch is computed from the median training step on random data, not run. Data loading and "
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
            values["epoch_ns"] = row.step_ns * math.ceil(EPOCH_SAMPLES / batch)
    reason = NO_GPU if row is None and device == "cuda" else why(row)
    return with_reasons(values, EPOCH_COLUMNS, reason)


HOST, DEVICE_MEMORY = "host_peak_bytes", ("allocated_peak_bytes", "reserved_peak_bytes", "used_peak_bytes")
MEMORY_COLUMNS = (
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("level", "", "execution mode"),
    Column(HOST, "bytes", "peak resident memory of the process"),
    Column(DEVICE_MEMORY[0], "bytes", "peak allocated memory of the device with most"),
    Column(DEVICE_MEMORY[1], "bytes", "peak reserved memory"),
    Column(DEVICE_MEMORY[2], "bytes", "peak memory in use on the device by all processes, from NVML"),
)


def memory_table(suite: SuiteRows) -> Table:
    """Return a row per workload, mode and level, and geometric means per mode and level."""
    group = suite.part(CHARACTERIZATION)
    rows = []
    for row in group:
        reasons = {HOST: why(row), **dict.fromkeys(DEVICE_MEMORY, why(row, device=True))}
        rows.append(with_reasons(row.flat() | {"level": way(row.settings)}, MEMORY_COLUMNS, reasons))
    levels = dict.fromkeys(way(row.settings) for row in group)
    rows += [_mean_memory(group, mode, level) for level in levels for mode in MODES]
    return Table(
        name="memory",
        title="Memory of the host and the device",
        definition=(
            "Peaks; the host's without a profiler, including compilation. Geometric means by mode and level."
        ),
        source=f"{suite_plan.TORCHBENCH}, Fig. 3 and 4",
        columns=MEMORY_COLUMNS,
        rows=tuple(rows),
    )


def _mean_memory(group: Sequence[Row], mode: str, level: str) -> dict[str, Any]:
    of = [row for row in group if (row.settings.mode, way(row.settings)) == (mode, level)]
    values: dict[str, Any] = {"workload": GEOMEAN, "mode": mode, "level": level}
    means = {name: geomean(getattr(row, name) for row in of) for name in (HOST, *DEVICE_MEMORY)}
    values |= {name: None if value is None else round(value) for name, value in means.items()}
    first = of[0] if of else None
    reasons = {HOST: why(first), **dict.fromkeys(DEVICE_MEMORY, why(first, device=True))}
    return with_reasons(values, MEMORY_COLUMNS, reasons)


FOREACH, DROPPED = "zero_grad: zero to foreach", "zero_grad: zero to default"
SCALAR, OFFLOADED = "scalar copy: made on the host to made on the device", "offload: parameters to none"
_PUBLISHED_SPEEDUP = {SCALAR: suite_plan.FIXES["scalar copy"], OFFLOADED: suite_plan.FIXES["offload"]}
_REMARKS = {
    SCALAR: "27× is for one function, not for the step",
    OFFLOADED: "for the model pig2",
}
SPEEDUP_COLUMNS = (
    Column("change", "", "change"),
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("before_ns", "ns", "median unprofiled step before"),
    Column("after_ns", "ns", "median unprofiled step after"),
    Column("speedup", "×", "before over after; above 1× is faster"),
    _APART,
    Column("published_speedup", "×", "speedup published for the change"),
    Column("remark", "", "scope of the published number"),
)


_UNPUBLISHED = dict.fromkeys(("published_speedup", "remark"), "none: not published")


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
            "Step times without a profiler. Sides are apart if the median steps of all runs of one are below "
            f"all of the other, with {MIN_RUNS} runs each or more: by chance in at most 3% of cases, unless "
            "the machine drifts, as one side is measured after the other; `tracekit ab` alternates them."
        ),
        source=f"{suite_plan.TORCHBENCH}, Fig. 6",
        columns=SPEEDUP_COLUMNS,
        rows=tuple(rows),
    )


def _changes(suite: SuiteRows) -> dict[str, list[tuple[Row, Row | None]]]:
    zeroed = [row for row in suite.part(ZERO_GRAD) if row.settings.zero_grad == "zero"]
    return {
        FOREACH: [(row, suite.like(row, zero_grad="foreach")) for row in zeroed],
        DROPPED: [(row, suite.like(row, zero_grad="default")) for row in zeroed],
        SCALAR: list(_scalar(suite)),
        OFFLOADED: [(row, suite.like(row, offload="none")) for row in suite.part(OFFLOAD)],
    }


def _scalar(suite: SuiteRows) -> Iterator[tuple[Row, Row | None]]:
    """Return workloads with their fixed variants."""
    for row in suite.eager():
        after = suite.like(row, workload=f"{row.settings.workload}{FIXED}")
        if after is not None:
            yield row, after


def _speedup_row(change: str, before: Row, after: Row | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "change": change,
        "workload": before.settings.workload,
        "mode": before.settings.mode,
        "before_ns": before.step_ns,
        "after_ns": after.step_ns if after else None,
        "speedup": ratio(before.step_ns, after.step_ns) if after else None,
        "apart": runs_are_apart(before, after) if after else None,
        "published_speedup": _PUBLISHED_SPEEDUP.get(change),
        "remark": _REMARKS.get(change),
    }
    missing = why(before) if before.step_ns is None else why(after)
    reasons = {
        "before_ns": why(before),
        "after_ns": why(after),
        "speedup": missing,
        "apart": FEW if before.n and after and after.n else missing,
        **_UNPUBLISHED,
    }
    return with_reasons(values, SPEEDUP_COLUMNS, reasons)


def _mean_speedup(change: str, group: list[dict[str, Any]]) -> dict[str, Any]:
    values = {
        "change": change,
        "workload": GEOMEAN,
        "speedup": geomean(row["speedup"] for row in group),
        "mode": ", ".join(dict.fromkeys(row["mode"] for row in group)),
        "published_speedup": _PUBLISHED_SPEEDUP.get(change),
        "remark": _REMARKS.get(change),
    }
    reasons = dict.fromkeys(("before_ns", "after_ns", "apart"), RATIOS) | _UNPUBLISHED
    return with_reasons(values, SPEEDUP_COLUMNS, {**reasons, "speedup": "not measured"})


SHARES = ("active_share", "movement_share", "idle_share")
WORKLOAD_COLUMNS = (
    Column("workload", "", "what ran"),
    Column("domain", "", "application domain"),
    Column("mode", "", "train or infer"),
    Column("batch_size", "", "samples per step"),
    Column("resolution", "", "resolution, as defined by the workload"),
    Column("active_share", "share", "share with a kernel running"),
    Column("movement_share", "share", "share with a copy but no kernel running"),
    Column("idle_share", "share", "share with nothing running"),
    Column("step_ns", "ns", "median unprofiled step"),
    Column("samples_per_second", "count", "batch size over step time"),
    Column("run_id", "id", "run with the median unprofiled step"),
)


def workload_table(suite: SuiteRows) -> Table:
    """Return a row per workload and mode."""
    rows = []
    for row in suite.eager():
        values = {**row.flat(), "domain": suite.domains[row.settings.workload]}
        reasons = dict.fromkeys((column.name for column in WORKLOAD_COLUMNS), why(row))
        reasons |= dict.fromkeys(SHARES, why(row, device=True))
        rows.append(with_reasons(values, WORKLOAD_COLUMNS, reasons))
    return Table(
        name="workloads",
        title="Active, movement and idle time by workload",
        definition="Shares of the profiled steps on the busiest device; they sum to 1. Eager mode.",
        source=f"{suite_plan.TORCHBENCH}, Fig. 1 and 2",
        columns=WORKLOAD_COLUMNS,
        rows=tuple(rows),
    )


DOMAIN_COLUMNS = (
    Column("domain", "", "domain of the workloads"),
    Column("mode", "", "train or infer"),
    Column("workloads", "count", "workloads with a recorded device, or all if there are none"),
    Column("active_share", "share", "mean share with a kernel running"),
    Column("published_active", "share", "same for TorchBench's models, on an A100"),
    Column("movement_share", "share", "mean share with a copy but no kernel running"),
    Column("published_movement", "share", "same for TorchBench's models"),
    Column("idle_share", "share", "mean share with nothing running"),
    Column("published_idle", "share", "same for TorchBench's models"),
)
_PUBLISHED = tuple(column.name for column in DOMAIN_COLUMNS if column.name.startswith("published"))


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
    values |= {name: mean(getattr(row, name) for row in recorded) for name in SHARES}
    shares = suite_plan.PUBLISHED_DOMAINS.get((domain, mode))
    if shares:
        values |= dict(zip(_PUBLISHED, shares, strict=True))
    elif domain == OVERALL:
        values["published_active"] = suite_plan.OVERALL_ACTIVE[mode]
    reason = "none: not published" if domain == OVERALL else "not in the study"
    reasons = dict.fromkeys(_PUBLISHED, reason)
    reasons |= dict.fromkeys(SHARES, why(group[0], device=True) if group else "no such mode")
    return with_reasons(values, DOMAIN_COLUMNS, reasons)
