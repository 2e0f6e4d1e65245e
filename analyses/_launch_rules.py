"""When a launch configuration is worth advice: few blocks, a tail, low occupancy, idle threads, variation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule, Severity
from tracekit.render import human
from tracekit.schema import C

from ._common import ints, matches
from ._hosts import source_lines
from ._launch_configs import BLOCK, FAMILY, GRID, NUMEL, OP, UNKNOWN, shapes_of
from ._ranges import weightiest
from ._savings import WARN_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.run import Run

    from ._savings import Budget

LONG_NS = 20_000
FEW_SHARE = 0.5
TAIL_SHARE = 0.25
LOW_OCCUPANCY = 0.25
MANY_THREADS = 8
FEW_CONFIGS = 3
MOST = 5
"""Findings of one rule at most: the costliest kernels."""
INFERRED, BOUND = 0.7, 0.5
"""Confidence where a number shows the state but not what it costs, and where it is an upper bound."""

_COMMUNICATION = r"(?i)nccl|rccl|all_?reduce|reduce_?scatter|all_?gather|cross_device_reduce|nvshmem"
_LIBRARY = (
    r"(?i)gemm|bmm|matmul|cudnn|cutlass|xmma|nvjet|conv|winograd|fprop|dgrad|wgrad|attn|attention|fmha|flash"
    r"|ck::|Cijk|triton"
)
_ELEMENTWISE = r"(?i)elementwise_kernel"

_CONFIG = [*GRID, *BLOCK]
RULES = (
    Rule(
        "serial_kernel",
        states="grids of one block, 20 µs a launch at the median, at least 1 % of the steps' time together",
        why=(
            "one block uses one SM of the device; below 20 µs a kernel costs little more than its launch, "
            "and a small result needs no more; collectives use few blocks on purpose and are left out"
        ),
    ),
    Rule(
        "few_blocks",
        states="2 or more blocks, for at most half of the SMs; 20 µs at the median, 3 % of the steps",
        why=(
            "a block stays on its SM, so the other SMs get nothing whatever fits on one; half and 3 % leave "
            "alone what gains little, for the gain is an upper bound"
        ),
    ),
    Rule(
        "partial_wave",
        states=(
            "more than one wave, of which the last leaves at least a quarter of all block slots empty; the "
            "upper bound of the saving is at least 3 % of the steps' time"
        ),
        why=(
            "with many waves the last one weighs little; blocks rarely take equally long, so that the bound "
            "is seldom reached"
        ),
    ),
    Rule(
        "low_occupancy",
        states=(
            "blocks for one wave or more, and no more than a quarter of an SM's threads resident at once; at "
            "least 3 % of the steps' time; matrix products, convolutions, attention and Triton left out"
        ),
        why=(
            "few resident threads hide memory latency badly; libraries and autotuners trade occupancy for "
            "registers and shared memory on purpose"
        ),
    ),
    Rule(
        "threads_per_element",
        states=(
            "element-wise kernels with 8 times as many threads as the broadcast inputs have elements, and at "
            "least one block per SM; at least 1 % of the steps' time"
        ),
        why="element-wise kernels of PyTorch give a thread 4 elements or more; a warp too many is rounding",
    ),
    Rule(
        "config_varies",
        states=(
            "one op with the same input shapes launches one kernel family with 2 or 3 grids or blocks, one "
            "launch per call and each of them more than once; at least 1 % of the steps' time"
        ),
        why=(
            "information only: strides, alignment and library heuristics are not recorded and may explain "
            "it; a grid that follows from the data takes many values, each of them once"
        ),
    ),
)


@dataclass(frozen=True)
class Launches:
    """What the rules look at.

    Attributes:
        run: The run.
        rows: Every kernel with a grid.
        configs: The same by configuration.
        spent: The steps.
    """

    run: Run
    rows: pd.DataFrame
    configs: pd.DataFrame
    spent: Budget

    @property
    def time(self) -> str:
        """The column of the time that counts against the steps."""
        return "counted_ns" if self.spent.marked else "total_ns"


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
    chosen = configs[(configs["blocks"] == 1) & (configs["median_ns"] >= LONG_NS) & ~(configs["sms"] <= 1)]
    for rows, total in _weighty(launches, chosen, least=0.01):
        first = rows.iloc[0]
        of = "" if pd.isna(first["sms"]) else f" of {first['sms']}"
        yield _finding(
            launches,
            "serial_kernel",
            rows,
            total,
            title=(
                f"{_kernel(first)} runs as one block of {first['block_threads']} threads, on one SM{of}: "
                f"{_time(launches, total)}"
            ),
            advice=f"spread the work of {_op(launches, rows)} over more blocks",
            confidence=INFERRED,
        )


def _few_blocks(launches: Launches) -> Iterator[Finding]:
    configs = _computing(launches.configs)
    few = (configs["blocks"] > 1) & (configs["blocks_per_sm"] <= FEW_SHARE)
    for rows, total in _weighty(launches, configs[few & (configs["median_ns"] >= LONG_NS)], least=WARN_SHARE):
        first = rows.iloc[0]
        bound = _bounded(launches, rows, 1 - rows["blocks_per_sm"])
        yield _finding(
            launches,
            "few_blocks",
            rows,
            total,
            title=(
                f"{_kernel(first)} launches {first['blocks']} blocks for {first['sms']} SMs: "
                f"{_time(launches, total)}"
            ),
            advice=(
                f"see whether larger inputs or another implementation give {_op(launches, rows)} more blocks "
                "(a split of the reduced dimension, smaller tiles); else run it beside other kernels"
            ),
            confidence=BOUND,
            saving=bound,
            how="upper bound: total × (1 − blocks / SMs), as if the work spread evenly over all SMs",
        )


def _partial_waves(launches: Launches) -> Iterator[Finding]:
    configs = _computing(launches.configs)
    chosen = configs[(configs["waves"] > 1) & (configs["tail_share"] >= TAIL_SHARE)]
    for rows, total in _weighty(launches, chosen, least=WARN_SHARE):
        first = rows.iloc[0]
        bound = _bounded(launches, rows, rows["tail_share"])
        if not launches.spent.matters(bound, least=WARN_SHARE):
            continue
        yield _finding(
            launches,
            "partial_wave",
            rows,
            total,
            title=(
                f"{_kernel(first)} launches {first['blocks']} blocks, {first['waves']:.2f} waves: the last "
                f"wave leaves the device partly idle; {_time(launches, total)}"
            ),
            advice=(
                f"let {_op(launches, rows)} fill whole waves of "
                f"{first['sms'] * first['resident_blocks']} blocks: another batch or tile size, or a "
                "grid-stride loop; check with a kernel profiler that the blocks take equally long"
            ),
            confidence=BOUND,
            saving=bound,
            how="upper bound: total × (1 − waves / ⌈waves⌉), reached only if all blocks take equally long",
        )


def _low_occupancy(launches: Launches) -> Iterator[Finding]:
    configs = _computing(launches.configs)
    resident = configs["resident_blocks"].astype("Float64") * configs["block_threads"]
    low = (resident <= LOW_OCCUPANCY * configs["max_threads"]).fillna(value=False).to_numpy(dtype=bool)
    own = ~_named(configs, _LIBRARY)
    for rows, total in _weighty(launches, configs[low & own & (configs["waves"] >= 1)], least=WARN_SHARE):
        first = rows.iloc[0]
        threads = int(first["resident_blocks"] * first["block_threads"])
        yield _finding(
            launches,
            "low_occupancy",
            rows,
            total,
            title=(
                f"{_kernel(first)} keeps {threads} of {int(first['max_threads'])} threads resident on an SM: "
                f"{_time(launches, total)}"
            ),
            advice=(
                f"{_op(launches, rows)}: a block takes {first['block_threads']} threads, "
                f"{first[C.REGISTERS]} registers a thread and {human(int(first['shared_bytes']), 'bytes')} "
                "of shared memory; less of what limits it would let more blocks run at once; whether that is "
                "faster only a kernel profiler can tell"
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
    for found, total in _weighty(launches, chosen, least=0.01):
        first = found.iloc[0]
        yield _finding(
            launches,
            "threads_per_element",
            found,
            total,
            title=(
                f"{_kernel(first)} launches {first['threads']:,} threads for {first[NUMEL]:,} elements: "
                f"{_time(launches, total)}"
            ),
            advice=f"size the grid of {_op(launches, found)} by its elements: most threads do nothing",
            confidence=INFERRED,
        )


def _broadcast(text: str) -> int:
    """Elements of what inputs of these shapes broadcast to."""
    sides = zip_longest(*(shape[::-1] for shape in shapes_of(text)), fillvalue=1)
    elements = 1
    for side in sides:
        elements *= max(side)
    return elements


def _varying(launches: Launches) -> Iterator[Finding]:
    chosen = _varied(launches.rows)
    for found, total in _weighty(launches, chosen, least=0.01):
        one = found[C.INPUT_SHAPES] == found.groupby(C.INPUT_SHAPES)[launches.time].sum().idxmax()
        distinct = found[one].drop_duplicates(_CONFIG)
        listed = ", ".join(_configuration(row) for row in distinct.to_dict("records"))
        yield _finding(
            launches,
            "config_varies",
            distinct,
            total,
            title=f"{_kernel(found.iloc[0])} has several configurations on the same shapes: {listed}",
            advice=(
                "nothing to change by this alone; strides, alignment, the data or a library's choice can "
                f"differ between the calls of {_op(launches, found)}: compare their times"
            ),
            confidence=INFERRED,
            severity=Severity.INFO,
        )


def _varied(rows: pd.DataFrame) -> pd.DataFrame:
    """Kernels of which one op launches 2 or 3 configurations on the same shapes, each of them repeatedly."""
    alone = rows[(rows[C.OP_ROW] != UNKNOWN) & (rows[NUMEL] > 0)]
    alone = alone[~alone.duplicated([C.OP_ROW, FAMILY], keep=False)]
    keys = [OP, FAMILY, C.INPUT_SHAPES, C.RANK, C.DEVICE]
    ways = alone.groupby([*keys, *_CONFIG], sort=True).size().reset_index(name="launches")
    counts = ways.groupby(keys, sort=True)["launches"].agg(["size", "min"])
    few = counts[(counts["size"] > 1) & (counts["size"] <= FEW_CONFIGS) & (counts["min"] > 1)]
    own = alone[pd.MultiIndex.from_frame(alone[keys]).isin(few.index)]
    counted = np.where(own[C.STEP].notna(), own[C.DUR_NS], 0).astype(np.int64)
    return own.assign(total_ns=own[C.DUR_NS], first_row=own[C.ROW_ID], counted_ns=counted)


def _computing(configs: pd.DataFrame) -> pd.DataFrame:
    return configs[~_named(configs, _COMMUNICATION)]


def _named(configs: pd.DataFrame, pattern: str) -> pd.Series:
    return matches(configs[FAMILY].astype("category"), pattern)


def _weighty(launches: Launches, chosen: pd.DataFrame, *, least: float) -> Iterator[tuple[pd.DataFrame, int]]:
    """The configurations of each op and family that matter, costliest first, with their time."""
    totals = chosen.groupby([OP, FAMILY], sort=True)[launches.time].sum()
    ordered = totals.sort_values(ascending=False, kind="stable").head(MOST)
    for op, name in ordered.index:
        rows = chosen[(chosen[OP] == op) & (chosen[FAMILY] == name)]
        total = int(rows[launches.time].sum())
        if launches.spent.matters(total, least=least):
            yield rows.sort_values([launches.time, "first_row"], ascending=[False, True]), total


def _bounded(launches: Launches, rows: pd.DataFrame, part: pd.Series) -> int:
    return int((rows[launches.time] * part).astype(np.float64).sum())


def _finding(
    launches: Launches,
    code: str,
    rows: pd.DataFrame,
    total: int,
    *,
    title: str,
    advice: str,
    confidence: float,
    saving: int | None = None,
    how: str = "",
    severity: Severity | None = None,
) -> Finding:
    spent = launches.spent
    evidence = weightiest(
        rows.rename(columns={"first_row": C.ROW_ID} if C.ROW_ID not in rows else {}),
        launches.time,
        EVIDENCE_ROWS,
    )
    return Finding(
        code=code,
        severity=severity or spent.severity(total if saving is None else saving),
        title=title,
        advice=advice,
        saving_ns_per_step=None if saving is None else spent.per_step(saving),
        basis=None if saving is None else Basis.ESTIMATED,
        how=how,
        confidence=confidence,
        evidence={"device_intervals": evidence},
    )


def _kernel(row: pd.Series) -> str:
    name = str(row[FAMILY]).rpartition("::")[2] if "<" not in str(row[FAMILY]) else str(row[FAMILY])
    return name if len(name) <= 60 else f"{name[:57]}..."


def _configuration(row: dict[Any, Any]) -> str:
    sides = [",".join(str(row[name]) for name in names) for names in (GRID, BLOCK)]
    return f"grid ({sides[0]}) block ({sides[1]})"


def _time(launches: Launches, total: int) -> str:
    return f"{human(launches.spent.per_step(total), 'ns')} {launches.spent.per}"


def _op(launches: Launches, rows: pd.DataFrame) -> str:
    """The op to change and, where a stack was recorded, the user's line."""
    firsts = rows["first_row"].head(EVIDENCE_ROWS)
    known = launches.rows.set_index(C.ROW_ID).loc[firsts, C.OP_ROW]
    ops = pd.Series(known.to_numpy(), dtype="Int64")
    lines = [line for line in source_lines(launches.run, ops.mask(ops == UNKNOWN)) if line]
    return f"{rows.iloc[0][OP]}{f' at {lines[0]}' if lines else ''}"
