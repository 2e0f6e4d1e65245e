"""Whether two runs did the same work under the same conditions, field by field.

A field that decides (GPU, workload, its configuration and shapes, dtype, profiler flags, step marker) must be
equal or declared to vary; one that may explain a difference (versions, host) is a warning. What only one side
says is a warning too: an imported trace knows little, and unknown is not different.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.diff.model import Comparability, Difference, Status
from tracekit.errors import UnusableInputError
from tracekit.fingerprint import WORKLOAD_FIELDS
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tracekit.diff.shapes import Shapes
    from tracekit.run import Run

SHAPES, DTYPE, MODE, STEP_MARKER = "shapes", "dtype", "mode", "step_marker"
WITHOUT_MARKER = "(none)"
_MODES = {True: "train", False: "infer", None: None}
MUCH = 0.25
"""Share of the common ops whose shapes all differ from which the workload's shapes differ."""

DECIDES = (
    "workload",
    *WORKLOAD_FIELDS,
    SHAPES,
    "gpu",
    "sm_count",
    "compute_capability",
    "world_size",
    "profiler_record_shapes",
    "profiler_profile_memory",
    "profiler_with_stack",
    STEP_MARKER,
)
EXPLAINS = (
    "torch",
    "cuda",
    "cudnn",
    "nccl",
    "triton",
    "driver",
    "python",
    "cpu",
    "os",
    "gpu_uuid",
    "collector",
)
FIELDS = (*DECIDES, *EXPLAINS)
IMPLIED: Mapping[str, Collection[str]] = {
    "gpu": ("sm_count", "compute_capability", "gpu_uuid"),
    "level": ("backend",),
    "batch_size": (SHAPES,),
    "resolution": (SHAPES,),
    "workload": (*WORKLOAD_FIELDS, SHAPES),
    "device": ("gpu", "sm_count", "compute_capability", "gpu_uuid"),
}
"""What varies of itself when a field is declared to vary."""
_GRAVITY = (Status.NOT_COMPARABLE, Status.WARN, Status.UNKNOWN, Status.DECLARED)


def declared(varying: Sequence[str]) -> frozenset[str]:
    """The fields that may differ.

    Raises:
        UnusableInputError: There is no field of that name.

    Example:
        >>> sorted(declared(["batch_size"]))
        ['batch_size', 'shapes']
    """
    unknown = [name for name in varying if name not in FIELDS]
    if unknown:
        raise UnusableInputError(f"--varying {unknown[0]}: unknown field", hint=f"known: {', '.join(FIELDS)}")
    return frozenset(varying).union(*(IMPLIED.get(name, ()) for name in varying))


def compare(
    base: Run, head: Run, shapes: tuple[Shapes, Shapes], *, varying: Sequence[str] = ()
) -> Comparability:
    """Compare two runs field by field.

    Args:
        base: The run compared with.
        head: The run in question.
        shapes: What the outermost ops of each were given.
        varying: Fields declared to differ.

    Raises:
        UnusableInputError: There is no field of a declared name.
    """
    free = declared(varying)
    a, b = _values(base), _values(head)
    if a[MODE] is None or b[MODE] is None:  # then like is compared with like: what was traced of both
        a[MODE], b[MODE] = (_MODES[side.trains] for side in shapes)
    found = [_difference(name, a[name], b[name], free) for name in FIELDS if name in a]
    found += [_traced(SHAPES, *(side.shapes for side in shapes), free=free)]
    if a[DTYPE] is None or b[DTYPE] is None:
        found += [_traced(DTYPE, *(side.dtypes for side in shapes), free=free)]
    kept = {one.field: one for one in found if one}  # what was traced says more than what is unknown
    return Comparability(tuple(sorted(kept.values(), key=_gravity)))


def _gravity(one: Difference) -> tuple[int, int]:
    return _GRAVITY.index(one.status), FIELDS.index(one.field)


def _difference(name: str, a: Any, b: Any, free: frozenset[str]) -> Difference | None:
    if a == b:
        return None
    if name in free:
        return Difference(name, a, b, Status.DECLARED)
    if a is None or b is None:
        return Difference(name, a, b, Status.UNKNOWN)
    return Difference(name, a, b, Status.NOT_COMPARABLE if name in DECIDES else Status.WARN)


@dataclass(frozen=True)
class _Names:
    """Ops that both sides have, and those of them that were given nothing alike."""

    common: int
    apart: tuple[str, ...]


def _traced(
    name: str, a: Mapping[str, Collection[str]], b: Mapping[str, Collection[str]], *, free: frozenset[str]
) -> Difference | None:
    """The difference in what the outermost ops were given, told by the ops that both sides have."""
    names = _apart(a, b)
    if not names.apart:
        return None
    first = names.apart[0]
    told = [f"{first} {sorted(side[first])[0]}" for side in (a, b)]
    if len(names.apart) > 1:
        told = [f"{text} and {len(names.apart) - 1} more ops" for text in told]
    status = Status.NOT_COMPARABLE if len(names.apart) >= MUCH * names.common else Status.WARN
    return Difference(name, told[0], told[1], Status.DECLARED if name in free else status)


def _apart(a: Mapping[str, Collection[str]], b: Mapping[str, Collection[str]]) -> _Names:
    common = sorted(a.keys() & b.keys())
    return _Names(len(common), tuple(name for name in common if not set(a[name]) & set(b[name])))


def _values(run: Run) -> dict[str, Any]:
    """Every field of a run but its shapes; None where unknown."""
    meta, environment = run.meta, run.meta.environment
    values = {name: meta.fingerprint.get(name) for name in FIELDS if name != SHAPES}
    packages = environment.get("packages") or {}
    values |= {name: values[name] or environment.get(name) for name in ("os", "nccl", "torch", "cuda")}
    values["triton"] = packages.get("triton")
    gpus = environment.get("gpus") or []
    values["gpu_uuid"] = gpus[0].get("uuid") if gpus and values["device"] != "cpu" else None
    values["collector"] = values["collector"] or meta.collector.name
    values[STEP_MARKER] = _marker(run)
    return values


def _marker(run: Run) -> str:
    """How the steps are marked, without their number."""
    names = run.table("steps", columns=[C.NAME])[C.NAME]
    kinds = sorted({re.sub(r"\d+$", "", str(name)) for name in names.unique()})
    return ", ".join(kinds) or WITHOUT_MARKER
