"""Find products that use slow units of the device, are not aligned, or are far from its peaks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import CONFIDENT, WARN_SHARE, Budget, budget
from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.common import Bools, duration, ints, percent
from ..shared.groups import number_by
from ..shared.host_rows import source_lines
from ..shared.pacing import is_paced_by_host
from ..shared.programs import program_of
from ..shared.tensor_shapes import parse_shapes
from .calls import MATRIX, NARROW, OP, OWNER, PRECISION, SIMT
from .tables import MIN_BOUND_SHARE

UNALIGNED = Rule(
    "unaligned_half_precision",
    bound=Bottleneck.COMPUTE,
    states="half-precision products with a dimension that is not a multiple of {min_alignment} run kernels "
    "whose names indicate loads of fewer elements or no tensor cores, in at least {min_share} of a step, "
    f"below {MIN_BOUND_SHARE:.0%} of their roof",
    why="tensor cores load {min_alignment} elements of 16 bits at once; narrower loads are slower",
    thresholds={"min_alignment": 8, "min_share": WARN_SHARE},
)
LOW_UTILIZATION = Rule(
    "low_matrix_utilization",
    bound=Bottleneck.COMPUTE,
    states=f"the calls of a counted op that reach below {MIN_BOUND_SHARE:.0%} of both roofs take at least "
    "{min_share} of a step, and no other rule explains it",
    why="libraries reach 60-90% of a roof on large matrices; runs differ by less than {min_share} of a step",
    thresholds={"min_share": WARN_SHARE},
)
SIBLING = Rule(
    "slower_than_sibling",
    bound=Bottleneck.COMPUTE,
    states="products of at least {min_size} in each dimension reach a share of their roof that smaller ones "
    "of the same op and precision exceed {min_ratio} times; at that share at least {min_saving_share} of a "
    "step would be saved; silent where the host paces the steps",
    why="a larger product fills the device at least as well, so the library chose a kernel that does not "
    "suit its shapes",
    thresholds={"min_size": 1_024, "min_ratio": 1.25, "min_saving_share": WARN_SHARE},
)
EQUAL = Rule(
    "slower_than_equal",
    bound=Bottleneck.COMPUTE,
    states="products run a kernel in at least {min_calls} calls that takes {min_ratio} times as long as "
    "another kernel in as many calls of the same op, shapes and precision; with the faster one at least "
    "{min_saving_share} of a step would be saved; silent where the host paces the steps",
    why="a library chooses another kernel for equal shapes because of strides or alignment; both have the "
    "same work",
    thresholds={"min_calls": 2, "min_ratio": 1.25, "min_saving_share": WARN_SHARE},
)
DENSE = Rule(
    "dense_experts",
    bound=Bottleneck.COMPUTE,
    states="a product with at most {max_experts} columns is followed by as many experts (one or two products "
    "and one back), all with as many rows as it has; they take at least {min_share} of the steps; silent "
    "where the host paces the steps",
    why="a router sends each token to one or a few experts, so that an expert gets a part of the rows",
    thresholds={"max_experts": 256, "min_share": WARN_SHARE},
)
RULES = (UNALIGNED, LOW_UTILIZATION, SIBLING, EQUAL, DENSE)
GROUP = "group"
"""Column: row of the table of ops that a kernel belongs to."""
SHORT_NS = 5_000
"""A call with a roof below this time is as short as the cost of launching a kernel."""
# a batched product is usually part of eager attention, where a fused kernel removes it
_PRODUCTS = [f"aten::{name}" for name in ("mm", "addmm", "linear", "_addmm_activation")]
_SMALL = (
    "A call has too little work to fill the device: do more per call (a larger batch, or several products "
    "as one `torch.bmm`)."
)
_LARGE = "Names and shapes do not show the cause: profile one call with {profiler}."


@dataclass(frozen=True)
class _Kernels:
    """The kernels of a run with the group that each belongs to, and the time of the run's steps."""

    run: Run
    rows: pd.DataFrame
    budget: Budget

    def longest_of(self, groups: pd.DataFrame) -> pd.DataFrame:
        rows = self.rows[self.rows[GROUP].isin(groups.index)]
        return rows.sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True]).head(EVIDENCE_ROWS)

    def where(self, longest: pd.DataFrame) -> str:
        """Source line that launched the first of these kernels, as the end of a sentence."""
        line = source_lines(self.run, longest[OWNER].head(1)).iloc[0]
        return f"; the longest kernel is launched at {line}" if line else ""

    def evidence(self, longest: pd.DataFrame) -> dict[str, list[int]]:
        hosts = [*dict.fromkeys(ints(longest, OWNER).tolist())]
        return {"device_intervals": ints(longest, C.ROW_ID).tolist(), "host_intervals": hosts}

    def is_worth(self, total: int, least: float) -> bool:
        """Whether this much time matters, and the host does not pace the steps."""
        return self.budget.matters(total, least=least) and not is_paced_by_host(
            self.run, self.rows, self.budget
        )

    def share_text(self, total: int) -> str:
        unit = "step time" if self.budget.marked else "capture"
        return f"{percent(self.budget.share(total))} of the {unit}"


def findings(run: Run, table: pd.DataFrame, kernels: pd.DataFrame) -> tuple[Finding, ...]:
    """Return findings on the table of ops."""
    rated = table[table[MATRIX].astype(bool) & table["utilization"].notna()]
    case = _Kernels(run, kernels, budget(run))
    # Bound by FP32 according to kernel names, with a higher TF32 roof: `kernels` has a rule on them.
    is_fp32 = (rated[PRECISION] == "fp32") & rated[SIMT] & (rated["bound"] == "compute")
    is_plain = (is_fp32 & (rated["tf32_tflops"] > rated["peak_tflops"])).to_numpy(bool)
    is_unaligned = _is_unaligned(rated) & ~is_plain
    is_slow = (rated["bound"] == "neither").to_numpy(bool) & ~is_plain & ~is_unaligned
    return (
        *_report_unaligned(case, rated[is_unaligned]),
        *_report_low(case, rated[is_slow]),
        *_report_siblings(case, rated[~is_plain & ~is_unaligned]),
        *_report_equal(case, table[table[MATRIX].astype(bool)]),
        *_report_dense_experts(case, table[table[OP].isin(_PRODUCTS)]),
    )


def _is_unaligned(table: pd.DataFrame) -> Bools:
    slow = (table["utilization"] < MIN_BOUND_SHARE) & (table[NARROW] | table[SIMT])
    products = table[OP].isin(_PRODUCTS) & slow & table[PRECISION].isin(("fp16", "bf16"))
    flags = products.to_numpy(bool, copy=True)
    flags[flags] = [bool(find_unaligned_sizes(shapes)) for shapes in table.loc[flags, C.INPUT_SHAPES]]
    return flags


def find_unaligned_sizes(shapes: str) -> list[int]:
    """Return the sizes of the last two dimensions of the multiplied matrices that are not multiples.

    Example:
        >>> find_unaligned_sizes("[[50257],[64,768],[768,50257]]")
        [50257]
    """
    matrices = [shape for shape in parse_shapes(shapes) if isinstance(shape, tuple) and len(shape) > 1]
    sizes = {size for shape in matrices[-2:] for size in shape[-2:]}
    return sorted(size for size in sizes if size % UNALIGNED["min_alignment"])


def _report_unaligned(case: _Kernels, groups: pd.DataFrame) -> Iterator[Finding]:
    total, multiple = int(groups["sum_ns"].sum()), UNALIGNED["min_alignment"]
    if not case.budget.matters(total, least=UNALIGNED["min_share"]):
        return
    first, longest = _longest(groups), case.longest_of(groups)
    sizes = ", ".join(str(size) for size in find_unaligned_sizes(first[C.INPUT_SHAPES]))
    yield Finding(
        UNALIGNED.code,
        Severity.WARN,
        f"16-bit products with sizes that are not multiples of {multiple} take "
        f"{case.share_text(total)} at {percent(_utilization(groups))} of their roof",
        f"Pad {sizes} in {first[OP]} {_shapes(first)} to a multiple of {multiple} (better 64)"
        f"{case.where(longest)}",
        confidence=CONFIDENT,
        evidence=case.evidence(longest),
        how="savings not estimated: they depend on the kernel that the library selects after padding",
    )


def _report_low(case: _Kernels, table: pd.DataFrame) -> Iterator[Finding]:
    """Findings on ops that are slow without a cause visible in names or shapes."""
    if not case.budget.matters(int(table["sum_ns"].sum()), least=LOW_UTILIZATION["min_share"]):
        return
    large = _LARGE.format(profiler=program_of(case.run).kernel_profiler)
    for op, groups in table.groupby(OP, sort=True):
        total, calls = int(groups["sum_ns"].sum()), int(groups["calls"].sum())
        if not case.budget.matters(total, least=LOW_UTILIZATION["min_share"]):
            continue
        best = int(groups["roof_ns"].sum()) // calls
        first, longest = _longest(groups), case.longest_of(groups)
        yield case.budget.finding(
            LOW_UTILIZATION,
            None,
            f"{op} runs at {percent(_utilization(groups))} of its roof for {case.share_text(total)}",
            f"{_SMALL if best < SHORT_NS else large} A call takes {duration(total // calls)} on average, "
            f"its work {duration(best)} at the roof; most time goes to {_shapes(first)} in "
            f"{first[PRECISION]}{case.where(longest)}",
            "savings not estimated: the distance from the roof is known, its cause is not",
            evidence=case.evidence(longest),
        )


def _report_siblings(case: _Kernels, table: pd.DataFrame) -> Iterator[Finding]:
    """The finding on products that reach less of their roof than smaller ones of the same op."""
    is_large = [_smallest_size(shapes) >= SIBLING["min_size"] for shapes in table[C.INPUT_SHAPES]]
    large = table[np.array(is_large, np.bool_)]
    work = (large[C.FLOPS] / large["calls"]).to_numpy(np.float64)
    slow, best = np.zeros(len(large), np.bool_), np.zeros(len(large), np.int64)
    reached = large["utilization"].to_numpy(np.float64)
    for rows in large.groupby([OP, PRECISION], sort=True).indices.values():
        for place in rows:
            smaller = rows[work[rows] < work[place]]
            if len(smaller):
                best[place] = smaller[int(reached[smaller].argmax())]
                slow[place] = reached[best[place]] >= SIBLING["min_ratio"] * reached[place]
    ratio = reached[best] / np.maximum(reached, 1e-9)
    saving = np.where(slow, ints(large, "device_ns") * (1 - 1 / np.maximum(ratio, 1)), 0).astype(np.int64)
    if not case.is_worth(int(saving.sum()), SIBLING["min_saving_share"]):
        return
    place = int(saving.argmax())
    first, sibling, longest = large.iloc[place], large.iloc[best[place]], case.longest_of(large[slow])
    yield case.budget.finding(
        SIBLING,
        int(saving.sum()),
        f"{first[OP]} reaches {percent(first['utilization'])} of its roof, smaller calls "
        f"{percent(sibling['utilization'])}: {case.share_text(int(large['sum_ns'][slow].sum()))}",
        f"{_shapes(first)} in {first[PRECISION]} is slower than {_shapes(sibling)}: tune this product "
        "(`torch.compile(mode='max-autotune')`, TunableOp or the library's tuning), try the transposed "
        f"layout of the weight, or split it{case.where(longest)}",
        f"its time at the share of the roof that smaller calls reach, {case.budget.per}",
        confidence=0.6,
        evidence=case.evidence(longest),
    )


def _report_equal(case: _Kernels, table: pd.DataFrame) -> Iterator[Finding]:
    """The finding on products that run a slower kernel than equal products do."""
    rows = case.rows[case.rows[GROUP].isin(table.index) & case.rows[MATRIX].to_numpy(bool)]
    number, (_, first) = ints(rows, GROUP), number_by(rows, [GROUP, C.NAME])
    rows = rows[np.bincount(number[first])[number] > 1].sort_values(C.DUR_NS, ascending=False)
    if rows.empty:
        return
    keys = [C.RANK, C.DEVICE, OWNER]
    calls = rows.drop_duplicates(keys).assign(name=lambda longest: longest[C.NAME].astype(object))
    calls = calls.set_index(keys).assign(took_ns=rows.groupby(keys)[C.DUR_NS].sum())
    kinds = calls.groupby([GROUP, "name"])["took_ns"].agg(["size", "median"])
    kinds = kinds[kinds["size"] >= EQUAL["min_calls"]].reset_index()
    best = kinds.sort_values("median").drop_duplicates(GROUP).set_index(GROUP)
    kinds = kinds.assign(best=kinds[GROUP].map(best["median"]))
    slow = calls.reset_index().merge(kinds[kinds["median"] >= EQUAL["min_ratio"] * kinds["best"]])
    saving = int((slow["took_ns"] - slow["best"]).clip(lower=0).sum())
    if not case.is_worth(saving, EQUAL["min_saving_share"]):
        return
    worst = slow.loc[int(slow.groupby([GROUP, "name"])["took_ns"].transform("sum").to_numpy().argmax())]
    group, faster = (rows[rows.index == worst[GROUP]].iloc[0] for rows in (table, best))
    longest = case.rows[case.rows[C.ROW_ID].isin(slow[C.ROW_ID])].nlargest(EVIDENCE_ROWS, C.DUR_NS)
    yield case.budget.finding(
        EQUAL,
        saving,
        f"{group[OP]} takes {worst['median'] / worst['best']:.2f} times as long as equal calls: "
        f"{case.share_text(int(slow['took_ns'].sum()))}",
        f"For {_shapes(group)} in {group[PRECISION]} the library chose {brief(str(worst['name']))} in some "
        f"calls and {brief(str(faster['name']))} in others: give all of them operands of the same strides "
        f"and alignment (`.contiguous()`, a transposed weight stored once){case.where(longest)}",
        f"their time above the median of the faster kernel for equal shapes, {case.budget.per}",
        confidence=0.6,
        evidence=case.evidence(longest),
    )


def _report_dense_experts(case: _Kernels, table: pd.DataFrame) -> Iterator[Finding]:
    """The finding on experts that compute all rows that their router saw."""
    named = zip(ints(table.reset_index(), "index").tolist(), table[OP], table[C.INPUT_SHAPES], strict=True)
    sizes = {group: _sizes(op, shapes) for group, op, shapes in named}
    known = set(sizes.values())
    if not any(
        depth != width and (rows, width, depth) in known and columns <= DENSE["max_experts"]
        for rows, depth, columns in known
        for _, _, width in known
        if (rows, depth, width) in known
    ):
        return
    kernels = case.rows[case.rows[GROUP].isin(table.index)].sort_values([C.RANK, C.DEVICE, C.START_NS])
    calls = kernels.drop_duplicates([C.RANK, C.DEVICE, OWNER])
    dense: list[object] = []
    experts = 0
    for _, of_device in calls.groupby([C.RANK, C.DEVICE]):
        order = [sizes[int(group)] for group in of_device[GROUP]]
        for place in range(len(order)):
            if count := _count_experts(order, place):
                dense += of_device[OWNER].iloc[place + 1 : place + 1 + count].tolist()
                experts = max(experts, order[place][2])
    rows = kernels[kernels[OWNER].isin(dense)]
    total = int(rows[C.DUR_NS].sum())
    if not case.is_worth(total, DENSE["min_share"]):
        return
    longest = rows.nlargest(EVIDENCE_ROWS, C.DUR_NS)
    yield case.budget.finding(
        DENSE,
        total - total // experts,
        f"All {experts} experts of a layer compute all tokens: {case.share_text(total)}",
        "After the router each expert multiplies as many rows as the router saw: give an expert only the "
        "tokens that are routed to it (`index_select` and `index_add_`, or grouped products)"
        f"{case.where(longest)}",
        f"upper bound: all but one of {experts} parts of the time of these products, as if each token went "
        f"to one expert and each part ran as efficiently; {case.budget.per}",
        confidence=0.5,
        evidence=case.evidence(longest),
    )


def _count_experts(order: Sequence[tuple[int, int, int]], place: int) -> int:
    """Number of products of dense experts after that of their router; 0 if none follow."""
    rows, depth, experts = order[place]
    if not 2 <= experts <= DENSE["max_experts"] or rows < 2 or place + 1 == len(order):
        return 0
    width = order[place + 1][2]
    into, back = (rows, depth, width), (rows, width, depth)
    for first in (1, 2):  # the second one is a gate
        expert = [into] * first + [back]
        after = order[place + 1 : place + 1 + len(expert) * experts]
        if width != depth and list(after) == expert * experts:
            return len(after)
    return 0


def _sizes(op: str, shapes: str) -> tuple[int, int, int]:
    """Rows, depth and columns of a product; zeros without two matrices."""
    matrices = [shape for shape in parse_shapes(shapes) if isinstance(shape, tuple) and len(shape) > 1]
    if len(matrices) < 2:
        return 0, 0, 0
    left, right = matrices[-2:]
    return prod(left[:-1]), left[-1], right[0] if op == "aten::linear" else right[-1]


def _smallest_size(shapes: str) -> int:
    """The smallest of the last two dimensions of the multiplied matrices; 0 without two matrices."""
    matrices = [shape for shape in parse_shapes(shapes) if isinstance(shape, tuple) and len(shape) > 1]
    return min((size for shape in matrices[-2:] for size in shape[-2:]), default=0)


def _longest(groups: pd.DataFrame) -> pd.Series:
    """The first group with most time."""
    return groups.iloc[int(np.argmax(ints(groups, "sum_ns")))]


def _shapes(row: pd.Series) -> str:
    """Shapes of a group's inputs, without non-tensors at the end."""
    return re.sub(r"(?:,\[\])+\]$", "]", str(row[C.INPUT_SHAPES]))


def _utilization(groups: pd.DataFrame) -> float:
    """Roof over device time of all groups together."""
    return float(groups["roof_ns"].sum()) / max(1, int(groups["device_ns"].sum()))
