"""Findings on the host memory of copies and on the link."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pandas as pd

from tracekit.analysis import Basis, Bottleneck, Finding, Rule
from tracekit.analysis.savings import CONFIDENT, LEAST_SHARE, Budget, budget
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind, Memory

from ..shared.common import max_per_rank, spans
from ..shared.tensor_shapes import item_bytes
from . import repeated
from .causes import DTYPES, SHAPES
from .reading import (
    BLOCKED_NS,
    DIRECTION,
    KEYS,
    LARGE_BYTES,
    LINK,
    MEMORY,
    REACHABLE,
    REACHED_SHARE,
    SEEN,
    WORST,
    counted,
    evidence,
    exact_sum,
    faster_ns,
    places,
    with_origins,
)
from .repeated import scalars
from .tensors import DTYPE, ITEM, LEAST_BYTES, NARROW, NEEDED_ITEM, ON_DEVICE, ON_HOST, SHAPE, WHERE

if TYPE_CHECKING:
    from .groups import Hiding


PAGEABLE_BYTES = 64 << 10
SLOW_SHARE = 0.5
PAGEABLE, SLOW_LINK = "pageable_copies", "slow_link"
_DIRECTION_NAMES = {str(CopyKind.H2D): "Host-to-device", str(CopyKind.D2H): "Device-to-host"}
_SOURCE = {str(CopyKind.H2D): "from", str(CopyKind.D2H): "to"}
_ADVICE = {
    str(CopyKind.H2D): (
        "Copy from pinned memory with `non_blocking=True` (`DataLoader(pin_memory=True)`, or a buffer made "
        "with `pin_memory=True`), one batch early, so that the copy is faster and can overlap with kernels"
    ),
    str(CopyKind.D2H): (
        "Copy into a buffer made with `pin_memory=True` with `non_blocking=True` and wait for an event "
        "before reading it, so that the copy is faster and can overlap with kernels"
    ),
}

PINNED_RULES = (
    Rule(
        PAGEABLE,
        f"copies of at least {PAGEABLE_BYTES >> 10} KiB each from or to pageable memory, in profiled steps; "
        f"their exposed time is at least {LEAST_SHARE:.0%} of the step",
        "up to 64 KiB the driver stages a copy without waiting, so pinning changes little; two runs of one "
        "program differ by up to 1%",
        bound=Bottleneck.COPIES,
    ),
    Rule(
        SLOW_LINK,
        f"pinned copies of at least {LARGE_BYTES >> 20} MiB each run below {SLOW_SHARE:.0%} of the PCIe "
        f"link's rate, and at {REACHED_SHARE:.0%} of it at least {LEAST_SHARE:.0%} of the step would be "
        "saved; needs a recorded link",
        "large pinned copies reach 80 to 90% of a link, so half of it indicates a lower width or generation, "
        "a remote NUMA node or a shared link",
        bound=Bottleneck.COPIES,
    ),
)


def pinned_findings(run: Run, recurring: pd.DataFrame, hiding: Hiding, steps: Budget) -> tuple[Finding, ...]:
    """Findings on pageable copies and slow links among these copies."""
    found: list[Finding | None] = []
    for way in _DIRECTION_NAMES:
        rows = recurring[(recurring[DIRECTION] == way) & (recurring[MEMORY] == str(Memory.PAGEABLE))]
        found.append(
            _pageable(run, rows[(rows[C.BYTES] >= PAGEABLE_BYTES).fillna(value=False)], hiding, steps)
        )
    pinned = recurring[(recurring[MEMORY] == str(Memory.PINNED)) & recurring[LINK].notna()]
    large = pinned[(pinned[C.BYTES] >= LARGE_BYTES).fillna(value=False)]
    found += [_slow(rows, hiding, steps) for _, rows in large.groupby([*KEYS, DIRECTION], sort=True)]
    return tuple(one for one in found if one is not None)


def _pageable(run: Run, rows: pd.DataFrame, hiding: Hiding, steps: Budget) -> Finding | None:
    exposed = hiding.exposed(rows)
    if not steps.matters(exposed):
        return None
    faster = faster_ns(rows[C.BYTES], rows[C.DUR_NS], rows[REACHABLE])
    saving = None if faster.isna().any() else min(max_per_rank(rows, faster), exposed)
    located = with_origins(run, rows)
    way = str(rows[DIRECTION].iloc[0])
    size, took = int(rows[C.BYTES].sum()), int(rows[C.DUR_NS].sum())
    exposed_time = human(steps.per_step(exposed), "ns")
    blocked = exact_sum(rows[BLOCKED_NS])
    waited = "" if blocked is None else f"; the host is blocked {human(steps.per_step(blocked), 'ns')}"
    return Finding(
        PAGEABLE,
        steps.severity(exposed if saving is None else saving),
        f"{_DIRECTION_NAMES[way]} copies {_SOURCE[way]} pageable memory: "
        f"{human(size // steps.steps, 'bytes')} {steps.per} at {size / took:.1f} GB/s, {exposed_time} "
        f"exposed{waited}",
        f"{_ADVICE[way]}: {places(located, C.DUR_NS)}.",
        None if saving is None else steps.per_step(saving),
        None if saving is None else Basis.ESTIMATED,
        _how_pinned(rows, exposed_time, known=saving is not None) + f", {steps.per}, {WORST}",
        CONFIDENT if steps.marked else 0.6,
        evidence(rows),
    )


def _how_pinned(rows: pd.DataFrame, exposed_time: str, *, known: bool) -> str:
    overlap = f"overlapping the copies with kernels would save up to the exposed {exposed_time}"
    if not known:
        return f"the saving by pinning is not estimated, because no rate of pinned copies is known; {overlap}"
    seen = rows[SEEN].notna().all()
    source = (
        "the best pinned rate seen in the run"
        if seen
        else f"{REACHED_SHARE * 100:.0f}% of the PCIe link's rate"
    )
    rate = float(rows[REACHABLE].min())
    return f"time above bytes over {rate:.1f} GB/s, {source}, at most the exposed time; {overlap}"


def _slow(rows: pd.DataFrame, hiding: Hiding, steps: Budget) -> Finding | None:
    size, ran = int(rows[C.BYTES].sum()), _union(rows)
    link = float(rows[LINK].iloc[0])
    if not ran or size / ran >= SLOW_SHARE * link:
        return None
    saving = min(ran - int(size / (REACHED_SHARE * link)), hiding.exposed(rows))
    if not steps.matters(saving):
        return None
    way = str(rows[DIRECTION].iloc[0])
    rank, device = int(rows[C.RANK].iloc[0]), int(rows[C.DEVICE].iloc[0])
    return Finding(
        SLOW_LINK,
        steps.severity(saving),
        f"{_DIRECTION_NAMES[way]} copies of pinned memory run at {size / ran:.1f} GB/s on device {device} of "
        f"rank {rank}, where the PCIe link allows {link:.1f} GB/s",
        "Compare the link's current width and generation under load with its maximum (`nvidia-smi -q -d "
        "PCIE`), bind the process to the device's NUMA node, and look for other traffic on the same link; "
        "the trace does not show which is the cause.",
        steps.per_step(saving),
        Basis.ESTIMATED,
        f"time at least one of the copies ran minus bytes over {REACHED_SHARE * 100:.0f}% of the link's "
        f"rate, at most the exposed time, {steps.per}",
        0.6,
        evidence(rows),
    )


def _union(rows: pd.DataFrame) -> int:
    return intervals.length(intervals.union(*spans(rows)))


_COMPARED = (
    "workload",
    "mode",
    "level",
    "size",
    "dataset_shape",
    "batch_size",
    "resolution",
    "dtype",
    "pin_memory",
    "offload",
    "gpu",
    "torch",
)
_BATCH, _SIDE, _DTYPE = "batch_size", "resolution", "dtype"
_TORCH_NAMES = {
    "float64": "double",
    "float32": "float",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
}
_EXPLAINED = "no shapes recorded; the runs' settings explain the ratio exactly"


def explanations(base: Run, head: Run) -> dict[Fraction, list[tuple[str, str]]]:
    """Causes, in the order tested, by the ratio of bytes that they explain.

    A batch size scales every tensor, a resolution scales images by its square. A dtype alone explains a ratio
    only at equal known batch sizes, because a larger batch has the same effect.
    """
    batch, side = _ratio(_BATCH, base, head), _ratio(_SIDE, base, head)
    items = _item_ratio(base, head)
    found: dict[Fraction, list[tuple[str, str]]] = {}
    for work, names in (
        (batch or Fraction(1), (_BATCH,)),
        ((batch or Fraction(1)) * (side or Fraction(1)) ** 2, (_BATCH, _SIDE)),
    ):
        if work == 1:
            continue
        shape = SHAPES, f"{_EXPLAINED}: {differences(base, head, names)}"
        found.setdefault(work, [shape])
        if items != 1 and work * items != 1:
            both = f"{_EXPLAINED}: {differences(base, head, (*names, _DTYPE))}"
            found.setdefault(work * items, [(SHAPES, both), (DTYPES, both)])
    if batch == 1 and side in (None, 1) and items != 1:
        because = f"{_EXPLAINED} at one batch size: {differences(base, head, (_DTYPE,))}"
        found.setdefault(items, [(DTYPES, because)])
    return found


def differences(base: Run, head: Run, names: tuple[str, ...] = _COMPARED) -> str:
    """List the known settings that differ: `batch_size 32 against 16`."""
    values = [(name, setting(base, name), setting(head, name)) for name in names]
    return ", ".join(f"{name} {one} against {two}" for name, one, two in values if differs(one, two))


def differs(one: Any, two: Any) -> bool:
    """Whether both are known and differ."""
    return one is not None and two is not None and one != two


def setting(run: Run, name: str) -> Any:
    """A setting of a run, None if unknown."""
    found = run.meta.fingerprint.get(name)
    return found if found is not None else (run.meta.workload or {}).get(name)


def _ratio(name: str, base: Run, head: Run) -> Fraction | None:
    """Ratio of a setting of both runs, None if one is unknown."""
    values = [setting(run, name) for run in (base, head)]
    if not all(isinstance(value, int) and value > 0 for value in values):
        return None
    return Fraction(values[0], values[1])


def _item_ratio(base: Run, head: Run) -> Fraction:
    """Ratio of the item sizes of the runs' dtypes, 1 if one is unknown."""
    sizes = [item_bytes(_TORCH_NAMES.get(str(setting(run, _DTYPE)), "")) for run in (base, head)]
    return Fraction(sizes[0] or 1, sizes[1] or 1) if all(sizes) else Fraction(1)


WIDER = "h2d_wider_dtype"

RULE = Rule(
    WIDER,
    "bytes copied are exactly 2, 4 or 8 times the needed bytes: the copying op widened the dtype on the "
    "host, or as many kernels as copies convert a float64 or int64 tensor of that many elements to a "
    "narrower dtype later in the same step and no other kernel's op reads one; copies of at least "
    f"{LEAST_BYTES >> 10} KiB; saving at least {LEAST_SHARE:.0%} of the step",
    "a ratio of item sizes is exact; int64 labels or float64 data that kernels read directly are needed; "
    "smaller copies do not get faster with fewer bytes",
    bound=Bottleneck.COPIES,
)


def wider(copies: pd.DataFrame, hiding: Hiding, steps: Budget) -> Iterator[Finding]:
    """One finding per dtype pair and place of conversion."""
    large = copies[copies[NARROW].notna() & (copies[C.BYTES] >= LEAST_BYTES).fillna(value=False)]
    for _, rows in large.groupby([WHERE, DTYPE, NARROW], sort=True):
        one = rows.iloc[0]
        wide, narrow = _name(one[DTYPE]), _name(one[NARROW])
        factor = int(one[ITEM]) // int(one[NEEDED_ITEM])
        saving = hiding.exposed(rows) * (factor - 1) // factor
        if not steps.matters(saving):
            continue
        size = human(int(rows[C.BYTES].sum()) // steps.steps, "bytes")
        yield Finding(
            WIDER,
            steps.severity(saving),
            f"{_shapes(rows)} copied to the device as {wide}, {factor} times the bytes of {narrow} "
            f"({size} {steps.per})",
            _WIDER_ADVICE[one[WHERE]].format(wide=wide, narrow=narrow) + f": {places(rows, C.DUR_NS)}.",
            steps.per_step(saving),
            Basis.ESTIMATED,
            f"{factor - 1}/{factor} of the copies' exposed time, {steps.per}, {WORST}",
            CONFIDENT if one[WHERE] == ON_HOST else 0.8,
            evidence(rows),
        )


def _shapes(rows: pd.DataFrame) -> str:
    """Text: the shape with the longest copies, the number of other shapes, and the verb."""
    took = rows.groupby(SHAPE)[C.DUR_NS].sum().sort_index().sort_values(ascending=False, kind="stable")
    others = len(took) - 1
    return f"{took.index[0]} is" if not others else f"{took.index[0]} and {others:,} other shapes are"


_WIDER_ADVICE = {
    ON_DEVICE: (
        "Kernels on the device convert it to {narrow} and no other kernel reads it as {wide}: convert before "
        "the copy, or load it as {narrow}"
    ),
    ON_HOST: (
        "The source is {narrow} and the copying op widens it on the host first: copy it as {narrow} and "
        "convert on the device (`x.to(device).to(dtype)`)"
    ),
}
_NAMES = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "char": "int8",
    "unsigned char": "uint8",
    "long int": "int64",
    "long": "int64",
    "long long": "int64",
    "__int64": "int64",
}


def _name(dtype: str) -> str:
    """PyTorch's name of a dtype."""
    return _NAMES.get(dtype, dtype.removeprefix("c10::"))


SCALARS = "h2d_scalars"
_SCALAR_TITLE = "{count} scalar copies to the device {per} block the host {blocked}"
_SCALAR_ADVICE = (
    "Create the value on the device (`torch.full((), value, device=...)`) or pass it to the op as a Python "
    "number, instead of moving a tensor made on the host: {places}."
)

H2D_RULES = (
    RULE,
    repeated.RULE,
    repeated.scalars_rule(SCALARS, "host-to-device"),
    repeated.PING_PONG_RULE,
)


def h2d_findings(run: Run, copies: pd.DataFrame, down: pd.DataFrame, hiding: Hiding) -> tuple[Finding, ...]:
    """Findings on described host-to-device copies; device-to-host copies need no description."""
    steps = budget(run)
    up, down = counted(copies, marked=steps.marked), counted(down, marked=steps.marked)
    paired = repeated.pairs(pd.concat([up, down], ignore_index=True)) if steps.marked else up[:0]
    ping_pong = repeated.ping_pong(paired, hiding, steps)
    offloaded = set(paired[C.BYTES]) if ping_pong else set()
    found = [*wider(up, hiding, steps)]
    if steps.marked:
        not_offloaded = up[~up[C.BYTES].isin(offloaded | set(down[C.BYTES]))]
        found += repeated.repeated(not_offloaded, up, hiding, steps)
        found += scalars(up, hiding, steps, SCALARS, _SCALAR_TITLE, _SCALAR_ADVICE)
    return (*found, *ping_pong)
