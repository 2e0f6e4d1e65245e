"""Causes of different copies in two runs, and findings on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import CONFIDENT, Budget, budget
from tracekit.runs.run import Run
from tracekit.runs.text import human

from .reading import LARGE_BYTES

if TYPE_CHECKING:
    from .groups import Group


SHAPES, DTYPES, DUPLICATE, MEMORY_KIND, LINK = "shape", "dtype", "duplicate", "memory kind", "link"
DIFFERS, ONE_SIDE = "unknown", "one run only"
LEAST_BYTES_SHARE = 0.01
LEAST_TIME_SHARE = 0.1
LEAST_COPIES = 0.75
"""Less than one, so that a step without the copy does not hide the difference."""
LEAST_RATIO = 1.5


@dataclass(frozen=True)
class Cause:
    """Texts of a cause.

    Attributes:
        code: Code of its rule.
        title: Start of the finding's title.
        states: When it applies.
        why: Why it is tested in this order.
        advice: Advice of the finding.
    """

    code: str
    title: str
    states: str
    why: str
    advice: str


CAUSES = {
    SHAPES: Cause(
        "h2d_compare_shape",
        "The runs copy tensors of different shape",
        "matched tensors differ in elements, or the runs' batch size and resolution explain the bytes "
        "exactly",
        "different element counts are different work, so this is tested first and times are not compared",
        "The runs did different work per step: compare runs of the same batch size and shape instead.",
    ),
    DTYPES: Cause(
        "h2d_compare_dtype",
        "The runs copy the same elements in different dtypes",
        "equal elements and different item size, or equal batch size and the runs' dtypes explain the bytes",
        "at equal elements, bytes depend on the item size",
        "Copy the narrower dtype and convert on the device if the wider one is needed there.",
    ),
    DUPLICATE: Cause(
        "h2d_compare_duplicate",
        "The runs copy a tensor of one shape a different number of times",
        f"equal elements and item size, and copies per step differ by at least {LEAST_COPIES}",
        "at equal bytes per copy, bytes depend on the number of copies",
        "Look for a second copy of the same tensor; another tensor of the same shape cannot be ruled out.",
    ),
    ONE_SIDE: Cause(
        "h2d_compare_one_side",
        "A tensor is copied in only one run",
        "a tensor is copied in only one run",
        "a tensor without a counterpart is not a duplicate of another",
        "Check whether the tensor needs to be copied; it has no counterpart in the other run.",
    ),
    MEMORY_KIND: Cause(
        "h2d_compare_memory",
        "The runs copy the same bytes from different host memory",
        "equal bytes and copies, one from pageable and one from pinned memory",
        "at equal bytes and copies, pageable memory is staged and pinned is not",
        "Copy from pinned memory in both runs (`DataLoader(pin_memory=True)`, `non_blocking=True`).",
    ),
    LINK: Cause(
        "h2d_compare_link",
        "The same copies run at a different rate",
        f"equal bytes, copies and memory, at least {LARGE_BYTES >> 20} MiB each, and rates that differ more "
        f"than {LEAST_RATIO} times",
        "at equal bytes, copies and memory, the link or the host's memory remains",
        "Compare the link's width and generation under load (`nvidia-smi -q -d PCIE`), the NUMA node of the "
        "process and other traffic on the link; the traces do not show which is the cause.",
    ),
    DIFFERS: Cause(
        "h2d_compare_unknown",
        "The runs copy different bytes, cause unknown",
        "bytes per copy differ and the shapes of a run are not recorded",
        "without shapes, a larger shape and a wider dtype cannot be distinguished",
        "Record both runs with `record_shapes=True` to distinguish shape from dtype.",
    ),
}
"""The causes, in the order in which they are tested."""
_MATTERS = (
    f"the tensors of this cause together change the bytes per step by {LEAST_BYTES_SHARE:.0%} of the larger "
    f"side's or the time of copies by {LEAST_TIME_SHARE:.0%}"
)
RULES = tuple(
    Rule(one.code, f"comparing two runs: {one.states}; {_MATTERS}", one.why, bound=Bottleneck.COPIES)
    for one in CAUSES.values()
)
INFERRED = 0.6
_RECORDED = frozenset({SHAPES, DTYPES, MEMORY_KIND})
"""Causes that a trace can show by itself."""
_EQUAL_WORK = frozenset({DTYPES, DUPLICATE, MEMORY_KIND, LINK})
"""Causes with equal work on both sides, so that a difference of times is a saving."""


def findings(
    rows: list[dict[str, Any]], first: list[Group], second: list[Group], base: Run, head: Run
) -> tuple[Finding, ...]:
    """One finding per cause that matters, in the order in which causes are tested."""
    size = max(sum(group.bytes or 0 for group in side) for side in (first, second))
    took = max(sum(group.sum_ns for group in side) for side in (first, second))
    steps = budget(head)
    gpus = [run.meta.fingerprint.get("gpu") for run in (base, head)]
    other_gpu = f"{gpus[0]} and {gpus[1]}" if None not in gpus and gpus[0] != gpus[1] else ""
    found = []
    for cause in CAUSES:
        own = [row for row in rows if row["cause"] == cause]
        more_bytes = sum(
            row["head_bytes"] - row["base_bytes"]
            for row in own
            if row["head_bytes"] is not None and row["base_bytes"] is not None
        )
        more_ns = sum(row["head_sum_ns"] - row["base_sum_ns"] for row in own)
        less = abs(more_bytes) < max(1, LEAST_BYTES_SHARE * size)
        if own and not (less and abs(more_ns) < max(1, LEAST_TIME_SHARE * took)):
            found.append(_finding(cause, own, more_bytes, more_ns, steps, other_gpu))
    return tuple(found)


def _finding(
    cause: str, rows: list[dict[str, Any]], more_bytes: int, more_ns: int, steps: Budget, other_gpu: str
) -> Finding:
    heaviest = max(rows, key=lambda row: (abs(row["head_sum_ns"] - row["base_sum_ns"]), row["because"]))
    groups = [row["head_group"] for row in rows if row["head_group"]]
    exposed = sum(group.exposed_ns for group in groups)
    saving = min(more_ns, exposed) if cause in _EQUAL_WORK and more_ns > 0 and not other_gpu else None
    saving = saving or None
    others = f", and {len(rows) - 1:,} more tensors" if len(rows) > 2 else ""
    others = ", and 1 more tensor" if len(rows) == 2 else others
    return Finding(
        CAUSES[cause].code,
        steps.severity(saving * steps.steps) if saving else Severity.INFO,
        f"{CAUSES[cause].title}: {_tensor(heaviest, cause)}{heaviest['because']}{others}; "
        f"{_change(more_bytes, more_ns, cause)}",
        f"{_gpus(cause, other_gpu)}{CAUSES[cause].advice}{_lines(heaviest)}",
        saving,
        Basis.MEASURED if saving else None,
        "time of these copies in head minus that in base, at most the exposed time in head" if saving else "",
        CONFIDENT if cause in _RECORDED and _recorded(heaviest, cause) else INFERRED,
        _evidence(groups),
    )


def _gpus(cause: str, other_gpu: str) -> str:
    if not other_gpu or cause not in _EQUAL_WORK:
        return ""
    return f"The runs used {other_gpu}, whose links may explain the difference. "


def _recorded(row: dict[str, Any], cause: str) -> bool:
    """Whether the trace itself shows the cause, not only the runs' settings."""
    return cause == MEMORY_KIND or bool(row["base_shape"] and row["head_shape"])


def _tensor(row: dict[str, Any], cause: str) -> str:
    known = row["head_group"] or row["base_group"]
    if cause == SHAPES or not known.shape:
        return ""
    return f"{known.shape}, " if cause == DTYPES else f"{known.shape} {known.dtype}, "


def _change(more_bytes: int, more_ns: int, cause: str) -> str:
    way = "more" if more_bytes > 0 else "less"
    size = f"{human(abs(more_bytes), 'bytes')} {way} per step" if more_bytes else "the same bytes per step"
    if cause == SHAPES:
        return f"head copies {size}: different work, so times are not compared"
    took = f"{human(abs(more_ns), 'ns')} {'more' if more_ns > 0 else 'less'}" if more_ns else "equally long"
    return f"head copies {size}, which takes {took}"


def _lines(row: dict[str, Any]) -> str:
    lines = [
        f"{side} {brief(row[f'{side}_group'].source)}"
        for side in ("base", "head")
        if row[f"{side}_group"] and row[f"{side}_group"].source
    ]
    return f" Source: {', '.join(lines)}." if lines else ""


def _evidence(groups: list[Group]) -> dict[str, list[int]]:
    rows = [row for group in sorted(groups, key=lambda one: -one.sum_ns) for row in group.rows]
    return {"device_intervals": rows[:EVIDENCE_ROWS]} if rows else {}
