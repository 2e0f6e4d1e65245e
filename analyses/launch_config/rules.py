"""Rules of launch configurations and their thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from math import prod

import numpy as np
import pandas as pd

from tracekit.analysis import Bottleneck, Finding, Rule, Severity
from tracekit.analysis.kernel_names import COMMUNICATION, matches
from tracekit.analysis.savings import LEAST_SHARE, WARN_SHARE
from tracekit.runs.text import human
from tracekit.schema import C

from ..shared.common import ints
from .configs import BLOCK, FAMILY, GRID, NUMEL, OP, UNKNOWN, shapes_of
from .findings import (
    BOUND,
    INFERRED,
    Launches,
    bounded,
    configuration,
    finding,
    kernel,
    op_of,
    significant,
    time_of,
)

LONG_NS = 20_000
FEW_SHARE = 0.5
TAIL_SHARE = 0.25
LOW_OCCUPANCY = 0.25
MANY_THREADS = 8
FEW_CONFIGS = 3

RULES = (
    Rule(
        "serial_kernel",
        states="grids of one block with a median of at least 20 µs per launch, mostly while no other "
        f"kernel runs, and that time is at least {LEAST_SHARE:.0%} of the steps",
        why=(
            "one block uses one SM of the device; below 20 µs a kernel costs little more than its launch, "
            "and a small result needs no more blocks; collectives use few blocks by design and are excluded"
        ),
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        "few_blocks",
        states="at least 2 blocks, for at most half of the SMs; median of at least 20 µs; mostly while "
        f"no other kernel runs, for at least {WARN_SHARE:.0%} of the steps",
        why=(
            "a block stays on its SM, so the other SMs are idle; the thresholds exclude small gains, "
            "because the gain is an upper bound"
        ),
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        "partial_wave",
        states=(
            "more than one wave, the last of which leaves at least a quarter of all block slots empty; the "
            f"upper bound of the saving is at least {WARN_SHARE:.0%} of the steps' time"
        ),
        why=(
            "with many waves the last one matters little; blocks rarely take equally long, so the bound is "
            "rarely reached"
        ),
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        "low_occupancy",
        states=(
            "blocks for at least one wave, and at most a quarter of an SM's threads resident; at least "
            f"{WARN_SHARE:.0%} of the steps' time; matrix products, convolutions, attention and Triton "
            "excluded"
        ),
        why=(
            "few resident threads do not hide memory latency; libraries and autotuners trade occupancy for "
            "registers and shared memory by design"
        ),
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        "threads_per_element",
        states=(
            "element-wise kernels with 8 times as many threads as the broadcast inputs have elements, and at "
            f"least one block per SM; at least {LEAST_SHARE:.0%} of the steps' time"
        ),
        why="element-wise kernels of PyTorch process at least 4 elements per thread; an extra warp is "
        "rounding",
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        "config_varies",
        states=(
            "one op with the same input shapes launches one kernel family with 2 or 3 grids or blocks, one "
            f"launch per call and each configuration more than once; at least {LEAST_SHARE:.0%} of the "
            "steps' time"
        ),
        why=(
            "information only: strides, alignment and library heuristics are not recorded and may explain "
            "it; a data-dependent grid takes many values, each once"
        ),
        bound=Bottleneck.COMPUTE,
    ),
)


_LIBRARY = (
    r"(?i)gemm|bmm|matmul|cudnn|cutlass|xmma|nvjet|conv|winograd|fprop|dgrad|wgrad|attn|attention|fmha|flash"
    r"|ck::|Cijk|triton"
)
_ELEMENTWISE = r"(?i)elementwise_kernel"

_CONFIG = [*GRID, *BLOCK]


def findings(launches: Launches) -> tuple[Finding, ...]:
    """Every finding, those with the largest saving first."""
    found = [
        *_serial(launches),
        *_few_blocks(launches),
        *_partial_waves(launches),
        *_low_occupancy(launches),
        *_idle_threads(launches),
        *_varying(launches),
    ]
    return tuple(sorted(found, key=lambda one: -(one.saving_ns_per_step or 0)))


def _serial(launches: Launches) -> Iterator[Finding]:
    configs = _computing(launches.configs)
    chosen = configs[
        (configs["blocks"] == 1) & (configs["median_ns"] >= LONG_NS) & (configs["sms"].fillna(2) > 1)
    ]
    for rows, total in significant(launches, chosen, least=0.01):
        first = rows.iloc[0]
        of = "" if pd.isna(first["sms"]) else f" of {first['sms']}"
        yield finding(
            launches,
            "serial_kernel",
            rows,
            total,
            title=(
                f"{kernel(first)} runs as one block of {first['block_threads']} threads, on one SM{of}: "
                f"{time_of(launches, total)}"
            ),
            advice=(
                f"Spread the work of {op_of(launches, rows)} over more blocks: larger inputs, or another "
                "implementation; a result that is the same in every step need be computed once only"
            ),
            confidence=INFERRED,
        )


def _few_blocks(launches: Launches) -> Iterator[Finding]:
    configs = _computing(launches.configs)
    few = (configs["blocks"] > 1) & (configs["blocks_per_sm"] <= FEW_SHARE)
    for rows, total in significant(
        launches, configs[few & (configs["median_ns"] >= LONG_NS)], least=WARN_SHARE
    ):
        first = rows.iloc[0]
        bound, severity = bounded(launches, rows, 1 - rows["blocks_per_sm"])
        yield finding(
            launches,
            "few_blocks",
            rows,
            total,
            title=(
                f"{kernel(first)} launches {first['blocks']} blocks for {first['sms']} SMs: "
                f"{time_of(launches, total)}"
            ),
            advice=(
                f"See whether larger inputs or another implementation give {op_of(launches, rows)} more "
                "blocks (a split of the reduced dimension, smaller tiles); else run it beside other kernels"
            ),
            confidence=BOUND,
            saving=bound,
            severity=severity,
            how="upper bound: the time in which nothing else ran × (1 − blocks / SMs)",
        )


def _partial_waves(launches: Launches) -> Iterator[Finding]:
    configs = _computing(launches.configs)
    chosen = configs[(configs["waves"] > 1) & (configs["tail_share"] >= TAIL_SHARE)]
    for rows, total in significant(launches, chosen, least=WARN_SHARE):
        first = rows.iloc[0]
        bound, severity = bounded(launches, rows, rows["tail_share"])
        if not launches.spent.matters(bound, least=WARN_SHARE):
            continue
        yield finding(
            launches,
            "partial_wave",
            rows,
            total,
            title=(
                f"{kernel(first)} launches {first['blocks']} blocks, {first['waves']:.2f} waves: the last "
                f"wave leaves the device partly idle; {time_of(launches, total)}"
            ),
            advice=(
                f"Let {op_of(launches, rows)} fill whole waves of "
                f"{first['sms'] * first['resident_blocks']} blocks: another batch or tile size, or a "
                "grid-stride loop; check with a kernel profiler that the blocks take equally long"
            ),
            confidence=BOUND,
            saving=bound,
            severity=severity,
            how=(
                "upper bound: the time in which nothing else ran × (1 − waves / ⌈waves⌉), reached only if "
                "all blocks take equally long"
            ),
        )


def _low_occupancy(launches: Launches) -> Iterator[Finding]:
    configs = _computing(launches.configs)
    resident = configs["resident_blocks"].astype("Float64") * configs["block_threads"]
    low = (resident <= LOW_OCCUPANCY * configs["max_threads"]).fillna(value=False).to_numpy(dtype=bool)
    own = ~_named(configs, _LIBRARY)
    for rows, total in significant(launches, configs[low & own & (configs["waves"] >= 1)], least=WARN_SHARE):
        first = rows.iloc[0]
        threads = int(first["resident_blocks"] * first["block_threads"])
        yield finding(
            launches,
            "low_occupancy",
            rows,
            total,
            title=(
                f"{kernel(first)} keeps {threads} of {int(first['max_threads'])} threads resident on an SM: "
                f"{time_of(launches, total)}"
            ),
            advice=(
                f"{op_of(launches, rows)}: a block takes {first['block_threads']} threads, "
                f"{first[C.REGISTERS]} registers a thread and {human(int(first['shared_bytes']), 'bytes')} "
                "of shared memory; reducing the limiting resource allows more resident blocks; check with a "
                "kernel profiler whether that is faster"
            ),
            confidence=BOUND,
        )


def _idle_threads(launches: Launches) -> Iterator[Finding]:
    rows = launches.rows
    elementwise = rows[rows[NUMEL] > 0]
    elementwise = elementwise[elementwise[FAMILY].str.contains(_ELEMENTWISE)]
    elements = {text: _broadcast(text) for text in elementwise[C.INPUT_SHAPES].unique()}
    threads = elementwise[[*GRID, *BLOCK]].prod(axis=1)
    needed = elementwise[C.INPUT_SHAPES].map(elements).astype(np.int64)
    rare = set(ints(elementwise[threads >= MANY_THREADS * needed], C.ROW_ID).tolist())
    configs = launches.configs
    chosen = configs[configs["first_row"].isin(rare) & (configs["blocks_per_sm"] >= 1)]
    by_row = needed.set_axis(pd.Index(ints(elementwise, C.ROW_ID)))
    for found, total in significant(launches, chosen, least=0.01):
        first = found.iloc[0]
        yield finding(
            launches,
            "threads_per_element",
            found,
            total,
            title=(
                f"{kernel(first)} launches {first['threads']:,} threads for "
                f"{by_row[first['first_row']]:,} elements: "
                f"{time_of(launches, total)}"
            ),
            advice=f"Size the grid of {op_of(launches, found)} by its elements: most threads are idle",
            confidence=INFERRED,
        )


def _broadcast(text: str) -> int:
    """Number of elements of the broadcast input shapes."""
    return prod(max(side) for side in zip_longest(*(shape[::-1] for shape in shapes_of(text)), fillvalue=1))


def _varying(launches: Launches) -> Iterator[Finding]:
    chosen = _varied(launches.rows)
    for found, total in significant(launches, chosen, least=0.01):
        one = found[C.INPUT_SHAPES] == found.groupby(C.INPUT_SHAPES)[launches.time].sum().idxmax()
        distinct = found[one].drop_duplicates(_CONFIG)
        listed = ", ".join(configuration(row) for row in distinct.to_dict("records"))
        yield finding(
            launches,
            "config_varies",
            distinct,
            total,
            title=f"{kernel(found.iloc[0])} has several configurations on the same shapes: {listed}",
            advice=(
                "Information only: strides, alignment, data or the library's heuristics can differ between "
                f"the calls of {op_of(launches, found)}: compare their times"
            ),
            confidence=INFERRED,
            severity=Severity.INFO,
        )


def _varied(rows: pd.DataFrame) -> pd.DataFrame:
    """Kernels launched by one op in 2 or 3 configurations on the same shapes, each repeatedly."""
    alone = rows[(rows[C.OP_ROW] != UNKNOWN) & (rows[NUMEL] > 0)]
    alone = alone[~alone.duplicated([C.OP_ROW, FAMILY], keep=False)]
    keys = [OP, FAMILY, C.INPUT_SHAPES, C.RANK, C.DEVICE]
    ways = alone.groupby([*keys, *_CONFIG], sort=True).size().reset_index(name="launches")
    counts = ways.groupby(keys, sort=True)["launches"].agg(["size", "min"])
    few = counts[(counts["size"] > 1) & (counts["size"] <= FEW_CONFIGS) & (counts["min"] > 1)]
    own = alone[pd.MultiIndex.from_frame(alone[keys]).isin(few.index)]
    counted = np.where(own[C.STEP].notna(), own[C.DUR_NS], 0).astype(np.int64)
    exposed = np.where(own[C.STEP].notna(), own["alone_ns"], 0).astype(np.int64)
    return own.assign(
        total_ns=own[C.DUR_NS], first_row=own[C.ROW_ID], counted_ns=counted, counted_alone_ns=exposed
    )


def _computing(configs: pd.DataFrame) -> pd.DataFrame:
    return configs[~_named(configs, COMMUNICATION)]


def _named(configs: pd.DataFrame, pattern: str) -> pd.Series:
    return matches(configs[FAMILY].astype("category"), pattern)
