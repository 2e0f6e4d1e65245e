"""Explanation of different bytes per copy by the settings of two runs, if shapes are not recorded."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from .._shared.tensors import item_bytes
from .causes import DTYPES, SHAPES

if TYPE_CHECKING:
    from tracekit.run import Run

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
