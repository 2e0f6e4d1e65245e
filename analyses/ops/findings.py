"""Rules on the ops of a run without device work: kinds of ops that take its steps, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import HIGH_SHARE, MIN_SHARE, WARN_SHARE, Budget, budget
from tracekit.ingest.link.nesting import climb_to
from tracekit.runs.conditions import SCHEDULER, STEP_THREAD_WAITED
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind

from ..shared.common import NO_PARENT, Bools, contains, ints, is_kind, map_texts
from ..shared.host_columns import read_host_columns
from ..shared.host_rows import NO_SOURCE, Ops, largest_line
from ..shared.pacing import is_paced_by_host
from ..shared.tensor_shapes import numel, parse_shapes
from ..steps import find_slowdown
from .reads import MIN_READS, find_read_loops

MIN_SLOWING_GROWTH = 1.05
"""Growth of inputs over the profiled steps from which they explain that unprofiled steps become slower."""
SMALL = Rule(
    "host_small_ops",
    states="a run without device work has at least {min_ops_per_step} ops per step of a self time of at most "
    "{max_self_ns} each, and these fill {min_share} of the steps without their waits for a core",
    why="calling an op takes some µs, whatever the size of its tensors; a few that lose their core meanwhile "
    "take ms, which is no part of it",
    thresholds={"min_ops_per_step": 1_000, "max_self_ns": 15_000, "min_share": 0.3},
)
LAYOUT = Rule(
    "host_layout_copies",
    states="a run without device work with convolutions makes tensors of images or volumes contiguous at "
    "least {min_calls_per_step} times per step, outside of other ops, by copies that take {min_share} of the "
    "steps",
    why="ops keep the memory format of their input, so that a model needs one conversion at most",
    thresholds={"min_share": HIGH_SHARE, "min_calls_per_step": 2},
)
DENSE = Rule(
    "host_dense_gradients",
    states="a run without device work fills gradients of embeddings with zeros, and updates tensors of their "
    "shape in optimizers, for at least {min_share} of its steps",
    why="the gradient of a batch has rows of the values that occur in it; other rows cost time only if dense",
    thresholds={"min_share": HIGH_SHARE},
)
HALF = Rule(
    "host_half_precision",
    states="ops on float16 tensors take at least {min_share} of the steps of a run without device work",
    why="most CPUs have no arithmetic on float16 and convert each value; many have it on bfloat16",
    thresholds={"min_share": HIGH_SHARE},
)
GROWING = Rule(
    "host_growing_inputs",
    states="in a run without device work the elements of an op's inputs grow with each of at least "
    "{min_steps} steps, {min_growth}-fold in all, or "
    f"{MIN_SLOWING_GROWTH}-fold if unprofiled steps become slower, and the op takes {{min_share}} of the "
    "steps",
    why="one more token or row per step is a smaller growth; a list that is concatenated anew, or "
    "a graph that is kept, costs more each step",
    thresholds={"min_share": HIGH_SHARE, "min_growth": 1.5, "min_steps": 5},
)
READS = Rule(
    "host_values_read",
    states="in a run without device work at least {min_reads} values in a row are read into Python one at a "
    "time, with nothing but reductions between them, which takes {min_share} of the steps",
    why="each read and each reduction of one value is a call of some µs; a list of tensors needs one of each",
    thresholds={"min_share": WARN_SHARE, "min_reads": MIN_READS},
)
RANDOM = Rule(
    "host_random_tensors",
    states="in a run without device work ops that fill tensors with random numbers, except inside of other "
    "ops such as `multinomial`, take at least {min_share} of the steps, in at least {min_calls} calls each "
    "with the same shapes, which must be recorded where no steps are marked",
    why="one thread makes some hundred million numbers per second, a GPU or a generator that runs once more",
    thresholds={"min_share": HIGH_SHARE, "min_calls": 3},
)
VIEWS = Rule(
    "ddp_gradient_copies",
    bound=Bottleneck.COMMUNICATION,
    states="DistributedDataParallel copies reduced gradients from its buckets, which takes at least "
    "{min_saving_share} of the steps: of the device, or of the host where it paces the steps",
    why="gradients that are views of the buckets are never copied back",
    thresholds={"min_saving_share": MIN_SHARE},
)
RULES = (SMALL, LAYOUT, DENSE, HALF, GROWING, READS, RANDOM, VIEWS)
MAX_NAMED = 3
ENGINE = "autograd::engine"
"""Begin of the names of nodes of backward, which no line of the user calls."""
CONVOLVES, MAKES_CONTIGUOUS = r"^aten::.*convolution", r"^aten::contiguous$"
EMBEDDING_GRADIENT, FILLS = r"^aten::embedding_dense_backward$", r"^aten::(?:new_)?(?:zeros|zero_|fill_)$"
MULTIPLIES = r"^aten::(?:linear|matmul|addmm|mm|bmm)$"
RANDOMIZES = r"^aten::(?:normal_?|uniform_?|random_|exponential_|log_normal_|cauchy_)$"
MAKES_RANDOM = r"^aten::(?:rand|normal)"
"""Ops that make a tensor of random numbers, and fill it by another op."""
COPIES_BACK = r"reducer::copy_bucket_to_grad$"
FLOAT16 = "c10::Half"
_IMAGE_DIMENSIONS = (4, 5)  # tensors have memory formats besides the contiguous one from 4 dimensions on


def findings(run: Run, ops: Ops, launched: tuple[Ints, Ints] | None) -> Iterator[Finding]:
    """Yield findings on the ops in the steps, most of them on those of a run without device work.

    Args:
        run: The run.
        ops: Its ops, with step, shapes and dtypes of the inputs.
        launched: int64 arrays of shape (device intervals,): place of the op that launched each, and its
            length in ns; None if unknown.
    """
    against = budget(run)
    inside = ops.frame[C.STEP].notna().to_numpy(bool) | (not against.marked)
    found = [_report_gradient_copies(run, ops, inside, launched, against)]
    if busy(run, [C.DUR_NS]).empty:
        found += [report(run, ops, inside, against) for report in _REPORTS]
        found.append(_report_reads(run, against))
    yield from (finding for finding in found if finding)


def _report_gradient_copies(
    run: Run, ops: Ops, inside: Bools, launched: tuple[Ints, Ints] | None, against: Budget
) -> Finding | None:
    places = np.flatnonzero(inside & contains(pd.Series(ops.labels), COPIES_BACK)[ops.names])
    if not len(places):
        return None
    took, where = ints(ops.frame, C.DUR_NS)[places], "the CPU"
    if launched is not None:
        columns = [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.STEP]
        kernels = run.table("device_intervals", columns=columns, where=is_kind(DeviceKind.KERNEL))
        if not is_paced_by_host(run, kernels, against):
            took, where = ops.total_inside(*launched)[places], "the device"
    total = int(took.sum())
    if not against.matters(total, least=VIEWS["min_saving_share"]):
        return None
    count = len(places) // against.steps
    return against.finding(
        VIEWS,
        total,
        f"DDP copies {count:,} gradients from its buckets: {against.describe(total)}",
        "Construct it with `gradient_as_bucket_view=True`: gradients are then views of the buckets, which "
        "also saves the memory of the second copy.",
        f"time of these copies on {where}, {against.per}",
        confidence=0.6,
        evidence={"host_intervals": ints(ops.frame, C.ROW_ID)[places][:EVIDENCE_ROWS].tolist()},
    )


def _report_small_ops(run: Run, ops: Ops, inside: Bools, against: Budget) -> Finding | None:
    small = inside & (ops.self_ns <= SMALL["max_self_ns"])
    count, total_ns = int(small.sum()), int(ops.self_ns[small].sum())
    ran = 1 - min(against.share(_sum_waits(run)), 1)
    if (
        count < SMALL["min_ops_per_step"] * against.steps
        or against.share(total_ns) < SMALL["min_share"] * ran
    ):
        return None
    called = small & (ops.parent == NO_PARENT) & ~_has_name(ops, f"^{ENGINE}")
    calls = ops.labels[ops.names[called]].value_counts().head(MAX_NAMED)
    named = ", ".join(f"{brief(str(name))} {calls / against.steps:,.0f}" for name, calls in calls.items())
    place = _describe_place_of_calls(run, ops.frame[called])
    return against.finding(
        SMALL,
        None,
        f"{count / against.steps:,.0f} ops of {human(total_ns // count, 'ns')} on average take "
        f"{against.describe(total_ns)}",
        f"Most calls {against.per}: {named}. {place}Calling such ops costs more than their arithmetic: "
        "compute a loop over elements or time steps in one op (`torch.bmm`, `nn.LSTM`), use ops on lists of "
        "tensors (`foreach=True`, `torch._foreach_norm`, `clip_grad_norm_`), read values once "
        "(`torch.stack(values).tolist()`), larger batches, or `torch.compile`",
    )


def _sum_waits(run: Run) -> int:
    """For how long the threads of the steps waited for a core in the profiled steps, ns; 0 if unknown."""
    where = (pc.field(C.SOURCE) == SCHEDULER) & (pc.field(C.METRIC) == STEP_THREAD_WAITED)
    readings = run.table("counters", columns=[C.RANK, C.VALUE], where=where).groupby(C.RANK)[C.VALUE]
    return int((readings.max() - readings.min()).sum())


def _report_layout_copies(run: Run, ops: Ops, inside: Bools, against: Budget) -> Finding | None:
    calls = inside & _has_name(ops, MAKES_CONTIGUOUS) & _has_child(ops)
    calls &= map_texts(ops.frame[C.INPUT_SHAPES], _is_image).to_numpy(bool)
    calls &= ~np.append(_has_name(ops, "^aten::"), False)[ops.parent]  # ops prepare inputs by themselves
    duration = ints(ops.frame, C.DUR_NS)
    total_ns, per_step = int(duration[calls].sum()), int(calls.sum()) / against.steps
    if not _has_name(ops, CONVOLVES).any() or per_step < LAYOUT["min_calls_per_step"]:
        return None
    if against.share(total_ns) < LAYOUT["min_share"]:
        return None
    place = _describe_place_of_calls(run, ops.frame[calls])
    return against.finding(
        LAYOUT,
        total_ns,
        f"aten::contiguous copies {per_step:,.0f} tensors {against.per}, which takes "
        f"{against.describe(total_ns)}",
        f"{place}Between convolutions such a copy changes the memory format: keep one "
        "(`model.to(memory_format=torch.channels_last)` and inputs alike, or none) and drop "
        "`.contiguous()` from the model, as ops keep the format of their input.",
        "upper bound: the time of these calls",
        confidence=LIKELY,
    )


def _report_random_tensors(run: Run, ops: Ops, inside: Bools, against: Budget) -> Finding | None:
    is_own = (ops.parent == NO_PARENT) | _has_name(ops, MAKES_RANDOM)[ops.parent]
    calls = inside & is_own & _has_name(ops, RANDOMIZES)
    shapes = ops.frame[C.INPUT_SHAPES].astype(object).fillna("")
    alike = pd.Series(calls).groupby([ops.names, shapes.to_numpy(object)]).transform("sum")
    calls &= (alike >= RANDOM["min_calls"]).to_numpy(bool) & (against.marked | (shapes != "").to_numpy(bool))
    calls &= ops.outermost_by(calls.astype(np.int64))  # `aten::normal` calls `aten::normal_`
    duration = ints(ops.frame, C.DUR_NS)
    total_ns = int(duration[calls].sum())
    if against.share(total_ns) < RANDOM["min_share"]:
        return None
    place = _describe_place_of_calls(run, ops.frame[calls])
    return against.finding(
        RANDOM,
        total_ns,
        f"Filling tensors with random numbers on the CPU takes {against.describe(total_ns)}",
        f"{place}If the tensors go to a GPU, make them there (`device=...` in the call of `torch`), which "
        "also saves the copy; else make them once, before the loop",
        "upper bound: the time of these ops",
        confidence=LIKELY,
    )


def _report_reads(run: Run, against: Budget) -> Finding | None:
    loops = find_read_loops(run, read_host_columns(run), READS["min_reads"])
    count, total_ns = int(loops.values.sum()), int((loops.end - loops.start).sum())
    if not count or against.share(total_ns) < READS["min_share"]:
        return None
    place = _describe_place(run, loops.row_id, loops.ranks, loops.start, loops.end)
    return against.finding(
        READS,
        total_ns,
        f"Reading {count / against.steps:,.0f} values one at a time takes {against.describe(total_ns)}",
        f"{place}Compute on the whole list (`torch._foreach_norm`; `clip_grad_norm_` returns the norm of all "
        "gradients) and read once (`torch.stack(values).tolist()`), or only every few steps",
        "upper bound: the time of these loops",
        confidence=LIKELY,
    )


def _describe_place_of_calls(run: Run, calls: pd.DataFrame) -> str:
    """Return the sentence of `_describe_place` on calls of ops."""
    start = ints(calls, C.START_NS)
    end = start + ints(calls, C.DUR_NS)
    return _describe_place(run, ints(calls, C.ROW_ID), ints(calls, C.RANK), start, end)


def _describe_place(run: Run, rows: Ints, ranks: Ints, start: Ints, end: Ints) -> str:
    """Return a sentence on the line that takes most of the time of some host rows; empty if it is unknown."""
    line = largest_line(run, rows, ranks, start, end)
    return f"The largest part is at {brief(line)}. " if line != NO_SOURCE else ""


def _is_image(shapes: str) -> bool:
    first = next(iter(parse_shapes(shapes)), None)
    return isinstance(first, tuple) and len(first) in _IMAGE_DIMENSIONS


def _report_dense_gradients(_run: Run, ops: Ops, inside: Bools, against: Budget) -> Finding | None:
    gradients = np.append(_has_name(ops, EMBEDDING_GRADIENT), False)  # index -1: without an op around
    fills = inside & _has_name(ops, FILLS) & gradients[ops.parent]
    shapes = ops.frame[C.INPUT_SHAPES].astype(str)
    in_gradient = inside & (climb_to(ops.parent, ops.parent, gradients[:-1]) != NO_PARENT)
    tables = set().union(*map(_first_shapes, shapes[in_gradient & _has_name(ops, FILLS)].unique()))
    products = shapes[inside & _has_name(ops, MULTIPLIES)].unique()
    tables -= {shape for text in products for shape in _all_shapes(text)}  # a head with the same weights
    updates = map_texts(shapes, lambda text: bool(tables & _first_shapes(text))).astype(bool)
    updates &= inside & ~in_gradient & ~_has_name(ops, r"embedding")
    updates &= climb_to(ops.parent, ops.parent, updates) == NO_PARENT
    total_ns = int(ints(ops.frame, C.DUR_NS)[fills | updates].sum())
    if not fills.any() or against.share(total_ns) < DENSE["min_share"]:
        return None
    return against.finding(
        DENSE,
        total_ns,
        f"Filling and updating by dense gradients of embeddings: {against.describe(total_ns)}",
        "A batch uses few rows of the table: `nn.Embedding(..., sparse=True)` with `torch.optim.SGD` or "
        "`SparseAdam` fills and updates those only",
        "upper bound: the ops on tensors of the shape of the tables",
    )


def _first_shapes(shapes: str) -> set[tuple[int, ...]]:
    """Shape of the first input, or those of the tensors of a list."""
    first = next(iter(parse_shapes(shapes)), None)
    return set(first if isinstance(first, list) else [first] if first else [])


def _all_shapes(shapes: str) -> set[tuple[int, ...]]:
    """Shapes of the inputs that are tensors, and of these transposed."""
    own = {entry for entry in parse_shapes(shapes) if isinstance(entry, tuple)}
    return own | {entry[::-1] for entry in own}


def _report_half_precision(_run: Run, ops: Ops, inside: Bools, against: Budget) -> Finding | None:
    is_half = inside & contains(ops.frame[C.INPUT_DTYPES], FLOAT16)
    outermost = is_half & (climb_to(ops.parent, ops.parent, is_half) == NO_PARENT)
    total_ns = int(ints(ops.frame, C.DUR_NS)[outermost].sum())
    if against.share(total_ns) < HALF["min_share"]:
        return None
    return against.finding(
        HALF,
        None,
        f"Ops on float16 tensors on the CPU take {against.describe(total_ns)}",
        "Use bfloat16 or float32 on the CPU: most CPUs convert each value of float16, and products and "
        "convolutions are often slower than in float32, also with AVX512-FP16",
        confidence=LIKELY,
    )


def _report_growing_inputs(run: Run, ops: Ops, inside: Bools, against: Budget) -> Finding | None:
    if not against.marked:
        return None
    outermost = inside & (ops.parent == NO_PARENT)
    frame = ops.frame[outermost]
    elements = map_texts(frame[C.INPUT_SHAPES], _count_elements)
    calls = pd.DataFrame({"op": ops.names[outermost], C.STEP: ints(frame, C.STEP), "elements": elements})
    times = np.bincount(calls["op"], ints(frame, C.DUR_NS), len(ops.labels)).astype(np.int64)
    sizes = calls.groupby(["op", C.STEP])["elements"].sum().unstack(C.STEP)
    # shapes are exact whatever other programs do, so that times need only agree with them
    growth = MIN_SLOWING_GROWTH if find_slowdown(run, disturbed=True) else GROWING["min_growth"]
    grows = np.array([_grows(row, growth) for row in sizes.to_numpy(float)], bool)
    growing = sizes.index.to_numpy()[grows]
    if not len(growing):
        return None
    op = max(growing, key=lambda code: int(times[code]))
    if against.share(int(times[op])) < GROWING["min_share"]:
        return None
    first, last = (human(int(sizes.loc[op].iloc[place]), "count") for place in (0, -1))
    return against.finding(
        GROWING,
        None,
        f"Inputs of {brief(str(ops.labels[op]))} grow with each step, from {first} to {last} elements; it "
        f"takes {against.describe(int(times[op]))}",
        "Something is kept and processed again in each step: a list that is concatenated anew, a cache, "
        "history in the loss. Write into a tensor that is allocated once, keep only what is needed, and "
        "`detach()` what is kept. If the inputs themselves are longer in each step, their order or padding "
        "makes them so",
        confidence=LIKELY,
    )


def _grows(sizes: Ints, growth: float) -> bool:
    """Whether sizes by step increase in each, by enough in all; a step without the op has none."""
    if len(sizes) < GROWING["min_steps"] or not (np.diff(sizes) > 0).all():
        return False
    return bool(sizes[-1] >= growth * sizes[0])


def _count_elements(shapes: str) -> int:
    """Elements of the tensors among an op's inputs, those in lists of tensors included."""
    entries = [entry for entry in parse_shapes(shapes) if entry]
    return sum(
        numel(entry) if isinstance(entry, tuple) else sum(numel(shape) for shape in entry)
        for entry in entries
    )


def _has_name(ops: Ops, pattern: str) -> Bools:
    matches: Bools = contains(pd.Series(ops.labels, dtype=object), pattern)[ops.names]
    return matches


def _has_child(ops: Ops) -> Bools:
    has_child = np.zeros(len(ops.parent) + 1, bool)
    has_child[ops.parent] = True
    return has_child[:-1]


_REPORTS = (
    *(_report_dense_gradients, _report_half_precision, _report_small_ops, _report_growing_inputs),
    *(_report_layout_copies, _report_random_tensors),
)
LIKELY = 0.6
"""Confidence where shapes and names suggest a cause that strides, values or the CPU would prove."""
