"""Rules of `launch_config`, and their findings on one run and on two runs compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule, Severity, savings
from tracekit.analysis.kernel_names import COMMUNICATION, brief
from tracekit.analysis.savings import MIN_SHARE, WARN_SHARE, Budget
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C

from ..shared.common import Bools, contains, ints, largest_rows, map_texts
from ..shared.groups import number_by
from ..shared.pacing import MAX_BUSY_SHARE, MAX_WAIT_SHARE, is_paced_by_host
from .configs import BLOCK, FAMILY, FUSED, GRID, NUMEL, OP, UNKNOWN, kind_of, product, shapes_of
from .launches import (
    MIN_ALONE_SHARE,
    Launches,
    bound_saving,
    configuration,
    grid_of,
    kernel,
    op_of,
    significant,
)

_SIGNIFICANT = {"min_alone_share": MIN_ALONE_SHARE, "min_saving_share": MIN_SHARE}
_BOUNDED = {**_SIGNIFICANT, "min_saving_share": WARN_SHARE}
"""Least shares of rules with a measured time, and with an upper bound of a saving."""

SERIAL = Rule(
    "serial_kernel",
    states="grids of at most {max_blocks} block with a median of at least {min_median_ns} per launch, at "
    "least {min_alone_share} of their time while no other kernel runs, and that time is at least "
    "{min_saving_share} of the steps",
    why="one block uses one SM of the device; below {min_median_ns} a kernel costs little more than its "
    "launch, and a small result needs no more blocks; collectives use few blocks by design and are excluded",
    bound=Bottleneck.COMPUTE,
    thresholds={"max_blocks": 1, "min_median_ns": 20_000, **_SIGNIFICANT},
)
FEW_BLOCKS = Rule(
    "few_blocks",
    states="at least {min_blocks} blocks, for at most {max_sm_share} of the SMs; median of at least "
    "{min_median_ns}; at least {min_alone_share} of their time while no other kernel runs; the upper "
    "bound of the saving is at least {min_saving_share} of the steps; silent where kernels run for less than "
    f"{MAX_BUSY_SHARE:.0%} of the steps and the host waits for less than {MAX_WAIT_SHARE:.0%}, because the "
    "host paces them",
    why="a block stays on its SM, so the other SMs are idle; the thresholds exclude small gains, because "
    "the gain is an upper bound",
    bound=Bottleneck.COMPUTE,
    thresholds={"min_blocks": 2, "max_sm_share": 0.5, "min_median_ns": 20_000, **_BOUNDED},
)
PARTIAL_WAVE = Rule(
    "partial_wave",
    states="more than {min_waves} wave, the last of which leaves at least {min_tail_share} of all block "
    "slots empty; the upper bound of the saving is at least {min_saving_share} of the steps' time; at least "
    "{min_alone_share} of their time while no other kernel runs",
    why="with many waves the last one matters little; blocks rarely take equally long, so the bound is "
    "rarely reached",
    bound=Bottleneck.COMPUTE,
    thresholds={"min_waves": 1, "min_tail_share": 0.25, **_BOUNDED},
)
LOW_OCCUPANCY = Rule(
    "low_occupancy",
    states="blocks for at least {min_waves} wave, and at most {max_thread_share} of an SM's threads "
    "resident; at least {min_saving_share} of the steps' time; matrix products, convolutions, attention and "
    "Triton excluded; at least {min_alone_share} of their time while no other kernel runs",
    why="few resident threads do not hide memory latency; libraries and autotuners trade occupancy for "
    "registers and shared memory by design",
    bound=Bottleneck.COMPUTE,
    thresholds={"min_waves": 1, "max_thread_share": 0.25, **_BOUNDED},
)
IDLE_THREADS = Rule(
    "threads_per_element",
    states="element-wise kernels with {min_threads_ratio} times as many threads as the broadcast inputs have "
    "elements, and at least {min_blocks_per_sm} block per SM; at least {min_saving_share} of the "
    "steps' time; at least {min_alone_share} of their time while no other kernel runs",
    why="element-wise kernels of PyTorch process several elements per thread; an extra warp is rounding",
    bound=Bottleneck.COMPUTE,
    thresholds={"min_threads_ratio": 8, "min_blocks_per_sm": 1, **_SIGNIFICANT},
)
VARIES = Rule(
    "config_varies",
    states="one op with the same input shapes launches one kernel family with {min_configs} to {max_configs} "
    "grids or blocks, one launch per call and each configuration at least {min_launches} times; at "
    "least {min_saving_share} of the steps' time; at least {min_alone_share} of their time while no "
    "other kernel runs",
    why="information only: strides, alignment and library heuristics are not recorded and may explain it; a "
    "data-dependent grid takes many values, each once",
    bound=Bottleneck.COMPUTE,
    thresholds={"min_configs": 2, "max_configs": 3, "min_launches": 2, **_SIGNIFICANT},
)
WORK_DIFFERS = Rule(
    "launch_work_differs",
    states="comparing runs: the grids of one op and kernel family differ by exactly the ratio of an input's "
    "elements or of the batch sizes, and the kernels take at least {min_saving_share} of either run's steps",
    why="a grid that grows with the number of elements indicates more work, not a worse configuration",
    bound=Bottleneck.COMPUTE,
    thresholds={"min_saving_share": MIN_SHARE},
)
CONFIG_CHANGED = Rule(
    "launch_config_changed",
    states="comparing runs: one op and kernel family with the same input shapes has another grid or block, "
    "and takes at least {min_saving_share} of either run's steps",
    why="the work is the same, so a change in time is not caused by the amount of work",
    bound=Bottleneck.COMPUTE,
    thresholds={"min_saving_share": MIN_SHARE},
)
RULES = (
    *(SERIAL, FEW_BLOCKS, PARTIAL_WAVE, LOW_OCCUPANCY, IDLE_THREADS, VARIES),
    *(WORK_DIFFERS, CONFIG_CHANGED),
)
INFERRED, UPPER_BOUND = 0.7, 0.5
"""Confidence of measured states with unknown cost, and of upper bounds."""
DIFFERENT_WORK, SAME_WORK = "different work", "same work"
"""Verdicts on a configuration that differs between two runs."""

_LIBRARY = (
    r"(?i)gemm|bmm|matmul|cudnn|cutlass|xmma|nvjet|conv|winograd|fprop|dgrad|wgrad|attn|attention|fmha|flash"
    r"|ck::|Cijk|triton"
)
_CONFIG = [*GRID, *BLOCK]


def findings(launches: Launches) -> tuple[Finding, ...]:
    """Every finding, those with the largest saving first."""
    configs = launches.configs[~contains(launches.configs[FAMILY], COMMUNICATION)]
    cases = (
        (SERIAL, _select_serial(configs), _describe_serial),
        (FEW_BLOCKS, _select_few_blocks(configs), _describe_few_blocks),
        (PARTIAL_WAVE, _select_partial_waves(configs), _describe_partial_wave),
        (LOW_OCCUPANCY, _select_low_occupancy(configs), _describe_low_occupancy),
        (IDLE_THREADS, _select_idle_threads(launches), _describe_idle_threads),
        (VARIES, _kernels_that_vary(launches.rows), _describe_varying),
    )
    result = [
        finding
        for rule, chosen, describe in cases
        for rows, total in significant(launches, rule, chosen)
        if (finding := _report(launches, rule, rows, total, describe(launches, rows)))
    ]
    return tuple(sorted(result, key=lambda finding: -(finding.saving_ns_per_step or 0)))


def _report(
    launches: Launches, rule: Rule, rows: pd.DataFrame, total: int, texts: tuple[str, str]
) -> Finding | None:
    """Return the finding of a rule on one kernel of an op; None if nothing or too little can be saved."""
    budget = launches.budget
    if rule is FEW_BLOCKS and is_paced_by_host(launches.run, launches.rows, budget):
        return None
    saving, severity, how = None, budget.severity(total), ""
    title = f"{texts[0]} {human(budget.per_step(total), 'ns')} {budget.per}"
    if rule in (FEW_BLOCKS, PARTIAL_WAVE):
        is_few = rule is FEW_BLOCKS
        how = (
            f"upper bound: the time in which nothing else ran × {_FEW_BLOCKS_PART if is_few else _TAIL_PART}"
        )
        part = 1 - rows["blocks_per_sm"] if is_few else rows["tail_share"]
        saving = bound_saving(launches, rows, part)
        severity = budget.severity(saving)
        if not budget.matters(saving, least=rule["min_saving_share"]):
            return None
    if rule is VARIES:
        title, severity, rows = texts[0], Severity.INFO, _distinct_configs(launches, rows)
    named = rows if C.ROW_ID in rows else rows.rename(columns={"first_row": C.ROW_ID})
    finding = budget.finding(
        rule,
        saving,
        title,
        texts[1],
        how,
        confidence=UPPER_BOUND if rule in (FEW_BLOCKS, PARTIAL_WAVE, LOW_OCCUPANCY) else INFERRED,
        evidence={"device_intervals": largest_rows(named, launches.time)},
    )
    return replace(finding, severity=severity)


_FEW_BLOCKS_PART = "(1 − blocks / SMs)"
_TAIL_PART = "(1 − waves / ⌈waves⌉), reached only if all blocks take equally long"


def _select_serial(configs: pd.DataFrame) -> pd.DataFrame:
    is_serial = (configs["blocks"] <= SERIAL["max_blocks"]) & (configs["sms"].fillna(2) > 1)
    return configs[is_serial & (configs["median_ns"] >= SERIAL["min_median_ns"])]


def _describe_serial(launches: Launches, rows: pd.DataFrame) -> tuple[str, str]:
    first = rows.iloc[0]
    of = "" if pd.isna(first["sms"]) else f" on {first['sms']} SMs"
    return (
        f"{kernel(first)} runs as one block{of}:",
        f"It has {first['block_threads']} threads. Spread the work of {op_of(launches, rows)} over more "
        "blocks: larger inputs, or another implementation; a result that is the same in every step need be "
        "computed once only",
    )


def _select_few_blocks(configs: pd.DataFrame) -> pd.DataFrame:
    is_few = configs["blocks"] >= FEW_BLOCKS["min_blocks"]
    is_few &= configs["blocks_per_sm"] <= FEW_BLOCKS["max_sm_share"]
    return configs[is_few & (configs["median_ns"] >= FEW_BLOCKS["min_median_ns"])]


def _describe_few_blocks(launches: Launches, rows: pd.DataFrame) -> tuple[str, str]:
    first = rows.iloc[0]
    return (
        f"{kernel(first)} launches {first['blocks']} blocks for {first['sms']} SMs:",
        f"See whether larger inputs or another implementation give {op_of(launches, rows)} more "
        "blocks (a split of the reduced dimension, smaller tiles); else run it beside other kernels",
    )


def _select_partial_waves(configs: pd.DataFrame) -> pd.DataFrame:
    many = configs["waves"] > PARTIAL_WAVE["min_waves"]
    return configs[many & (configs["tail_share"] >= PARTIAL_WAVE["min_tail_share"])]


def _describe_partial_wave(launches: Launches, rows: pd.DataFrame) -> tuple[str, str]:
    first = rows.iloc[0]
    return (
        f"{kernel(first)} launches {first['blocks']} blocks, {first['waves']:.2f} waves:",
        f"Let {op_of(launches, rows)} fill whole waves of {first['sms'] * first['resident_blocks']} blocks: "
        "another batch or tile size, or a grid-stride loop; check with a kernel profiler that the blocks "
        "take equally long",
    )


def _select_low_occupancy(configs: pd.DataFrame) -> pd.DataFrame:
    full = configs[configs["waves"] >= LOW_OCCUPANCY["min_waves"]]
    resident = full["resident_blocks"].to_numpy(np.float64) * ints(full, "block_threads")
    low = full[resident <= LOW_OCCUPANCY["max_thread_share"] * full["max_threads"].to_numpy(np.float64)]
    return low[~contains(low[FAMILY], _LIBRARY)]


def _describe_low_occupancy(launches: Launches, rows: pd.DataFrame) -> tuple[str, str]:
    first = rows.iloc[0]
    threads = int(first["resident_blocks"] * first["block_threads"])
    return (
        f"{kernel(first)} keeps {threads} of {int(first['max_threads'])} threads resident on an SM:",
        f"{op_of(launches, rows)}: a block takes {first['block_threads']} threads, "
        f"{first[C.REGISTERS]} registers a thread and {human(int(first['shared_bytes']), 'bytes')} "
        "of shared memory; reducing the limiting resource allows more resident blocks; check with a "
        "kernel profiler whether that is faster",
    )


def _select_idle_threads(launches: Launches) -> pd.DataFrame:
    rows, configs = launches.rows, launches.configs
    full = configs[configs["blocks_per_sm"] >= IDLE_THREADS["min_blocks_per_sm"]]
    rows = rows[(rows[NUMEL] > 0) & rows[C.ROW_ID].isin(full["first_row"])]
    rows = rows[contains(rows[FAMILY], r"(?i)elementwise_kernel")]
    needed = map_texts(rows[C.INPUT_SHAPES], _broadcast).to_numpy(np.int64)
    many = product(rows, [*GRID, *BLOCK]) >= IDLE_THREADS["min_threads_ratio"] * needed
    return full[full["first_row"].isin(rows.loc[many, C.ROW_ID])]


def _describe_idle_threads(launches: Launches, rows: pd.DataFrame) -> tuple[str, str]:
    first = rows.iloc[0]
    shapes = launches.rows.set_index(C.ROW_ID).loc[first["first_row"], C.INPUT_SHAPES]
    return (
        f"{kernel(first)} launches {first['threads']:,} threads for {_broadcast(shapes):,} elements:",
        f"Size the grid of {op_of(launches, rows)} by its elements: most threads are idle",
    )


def _broadcast(text: str) -> int:
    """Number of elements of the broadcast input shapes."""
    return prod(max(side) for side in zip_longest(*(shape[::-1] for shape in shapes_of(text)), fillvalue=1))


def _distinct_configs(launches: Launches, rows: pd.DataFrame) -> pd.DataFrame:
    """The configurations of the shapes with most time."""
    shapes = rows.groupby(C.INPUT_SHAPES)[launches.time].sum().idxmax()
    return rows[rows[C.INPUT_SHAPES] == shapes].drop_duplicates(_CONFIG)


def _describe_varying(launches: Launches, rows: pd.DataFrame) -> tuple[str, str]:
    listed = ", ".join(map(configuration, _distinct_configs(launches, rows).to_dict("records")))
    return (
        f"{kernel(rows.iloc[0])} has several configurations on the same shapes: {listed}",
        "Information only: strides, alignment, data or the library's heuristics can differ between "
        f"the calls of {op_of(launches, rows)}: compare their times",
    )


def _kernels_that_vary(rows: pd.DataFrame) -> pd.DataFrame:
    """Kernels launched by one op in few configurations on the same shapes, each repeatedly."""
    rows = rows[(rows[C.OP_ROW] != UNKNOWN) & (rows[NUMEL] > 0)]
    of_op, _ = number_by(rows, [C.OP_ROW, FAMILY])
    rows = rows[np.bincount(of_op)[of_op] == 1]
    keys = [OP, FAMILY, C.INPUT_SHAPES, C.RANK, C.DEVICE]
    kernels, _ = number_by(rows, keys)
    configs, first = number_by(rows, [*keys, *_CONFIG])
    kernel_of_config, launches = kernels[first], np.bincount(configs)
    count = np.bincount(kernel_of_config)
    repeated = np.bincount(kernel_of_config[launches >= VARIES["min_launches"]], minlength=len(count))
    varies = (count >= VARIES["min_configs"]) & (count <= VARIES["max_configs"]) & (repeated == count)
    varied: pd.DataFrame = rows[varies[kernels]]
    in_step = varied[C.STEP].notna().to_numpy(bool)
    return varied.assign(
        total_ns=varied[C.DUR_NS],
        first_row=varied[C.ROW_ID],
        counted_ns=np.where(in_step, ints(varied, C.DUR_NS), 0),
        counted_alone_ns=np.where(in_step, ints(varied, "alone_ns"), 0),
    )


def comparison_findings(base: Run, head: Run, pairs: pd.DataFrame, differ: str) -> Iterator[Finding]:
    """Yield findings about configurations that changed between two runs.

    `differ` names the devices of both runs if they differ, and is empty else.
    """
    budgets = {"base": savings.budget(base), "head": savings.budget(head)}
    for verdict, rule in ((DIFFERENT_WORK, WORK_DIFFERS), (SAME_WORK, CONFIG_CHANGED)):
        chosen = pairs[_matters(pairs, budgets, rule) & (pairs["verdict"] == verdict).to_numpy()]
        for pair in chosen.head(EVIDENCE_ROWS).to_dict("records"):
            report = _report_work if rule is WORK_DIFFERS else _report_config
            yield report(pair, budgets["head"], differ)


def _matters(pairs: pd.DataFrame, budgets: dict[str, Budget], rule: Rule) -> Bools:
    """Whether each pair takes enough of the steps of either run."""
    matters = np.zeros(len(pairs), np.bool_)
    for which, budget in budgets.items():
        time = "counted_ns" if budget.marked else "total_ns"
        totals = pairs[f"{which}_{time}"].fillna(0).to_numpy(dtype=np.int64)
        total_ns = budget.steps * budget.step_ns
        matters |= (totals > 0) & (totals >= rule["min_saving_share"] * total_ns)
    return matters


def _report_work(pair: dict[Any, Any], budget: Budget, _differ: str) -> Finding:
    op = brief(pair[OP])
    return budget.finding(
        WORK_DIFFERS,
        None,
        f"{op} did different work: {pair['work_ratio']:.3g}× the elements, grid {grid_of(pair, 'base_')} "
        f"against {grid_of(pair, 'head_')}, {_times(pair)} a launch",
        f"Compare runs with the same shapes and batch size to compare the speed of {op}{_what(pair)}",
        evidence={"device_intervals": [int(pair["head_first"])]},
    )


def _report_config(pair: dict[Any, Any], budget: Budget, differ: str) -> Finding:
    launches = pair["head_counted"] if budget.marked else pair["head_launches"]
    slower = (int(pair["head_median_ns"]) - int(pair["base_median_ns"])) * int(launches)
    chosen = (
        f"the devices differ ({differ})"
        if differ
        else "check for another version of PyTorch or a library, autotuning, and strides or alignment of the "
        "inputs"
    )
    op = brief(pair[OP])
    finding = budget.finding(
        CONFIG_CHANGED,
        slower,
        f"{op} runs the same shapes with another configuration: {configuration(pair, 'base_')} against "
        f"{configuration(pair, 'head_')}, {_times(pair)} a launch",
        f"{op} is launched with another configuration for the same shapes: {chosen}{_what(pair)}",
        "(median of head − median of base) × launches of head, in steps if steps are marked",
        confidence=INFERRED,
        evidence={"device_intervals": [int(pair["head_first"])]},
    )
    if slower > 0 and not differ:
        return finding
    return replace(finding, saving_ns_per_step=None, basis=None, how="")


def _what(pair: dict[Any, Any]) -> str:
    fused = kind_of(str(pair[FAMILY]), str(pair[OP])) == FUSED
    return "; the kernel is a convolution or matrix product, not a ReLU" if fused else ""


def _times(pair: dict[Any, Any]) -> str:
    return " against ".join(human(int(pair[f"{which}_median_ns"]), "ns") for which in ("base", "head"))
