"""Grid of a sweep: values of the axes, as options give them, and the cells that they span."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from operator import add, mul
from typing import Any

from tracekit import registry
from tracekit.errors import UnusableInputError
from tracekit.experiments.sweep_model import Cell, Settings
from tracekit.workloads.base import COMPILE, INDUCTOR, OWN_SHAPE, Workload

AXES = (
    "level",
    "backend",
    "mode",
    "dtype",
    "threads",
    "pin_memory",
    "zero_grad",
    "offload",
    "dataset_shape",
    "resolution",
    "batch_size",
)
"""Axes of a sweep, the last varying fastest; smaller sizes come first, as larger ones may be skipped."""
SIZES = ("resolution", "batch_size")
MAX_VALUES, MAX_CELLS = 1000, 100_000
ALL = "all"
_RANGE = re.compile(r"(\d{1,12})\.\.(\d{1,12})([*+])(\d{1,12})")
_WORDS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Parse a list of numbers into distinct numbers in rising order.

    Args:
        text: Comma-separated numbers and ranges: `8..1024*2` doubles from 8 to 1024, `16..64+16` adds 16.
        option: Name of the option, for error messages.

    Raises:
        UnusableInputError: It is no such list.

    Example:
        >>> numbers("8..64*2,48", "--batch-size")
        (8, 16, 32, 48, 64)
    """
    values: set[int] = set()
    for word in _words(text, option):
        if ".." in word:
            values.update(_range(word, option))
        elif re.fullmatch(r"\d{1,12}", word):
            values.add(int(word))
        else:
            hint = f"use whole numbers, as in {option} 8,16,32 or 8..1024*2"
            raise UnusableInputError(f"{option} cannot be {word!r}", hint=hint)
    return tuple(sorted(values))


def threads(text: str, option: str = "--threads") -> tuple[int | None, ...]:
    """Parse numbers of threads, with `all` for torch's default.

    Example:
        >>> threads("all,1")
        (None, 1)
    """
    words = _words(text, option)
    counts = ",".join(word for word in words if word != ALL)
    return (*([None] if ALL in words else []), *(numbers(counts, option) if counts else ()))


def switches(text: str, option: str) -> tuple[bool, ...]:
    """Parse yes and no.

    Example:
        >>> switches("no,yes", "--pin-memory")
        (False, True)
    """
    words = _words(text, option)
    if unknown := [word for word in words if word not in _WORDS]:
        raise UnusableInputError(f"{option} cannot be {unknown[0]!r}", hint=f"use {option} no,yes")
    return tuple(dict.fromkeys(_WORDS[word] for word in words))


def names(text: str, option: str) -> tuple[str, ...]:
    """Parse words, without duplicates.

    Example:
        >>> names("eager, compile", "--level")
        ('eager', 'compile')
    """
    return tuple(dict.fromkeys(_words(text, option)))


def cells(
    workload: str, axes_values: Mapping[str, Sequence[Any]], *, device: str = "auto", size: str = "default"
) -> tuple[Cell, ...]:
    """Return the cells of a grid; axes without values keep the workload's defaults.

    Args:
        workload: Registered name.
        axes_values: Values by axis.
        device: Device of all cells.
        size: Preset of the workload's `sizes`, for axes without values.

    Raises:
        PluginError: There is no such workload.
        UnusableInputError: There are too many cells, the workload has no such size, or a backend has
            nothing to compile.
    """
    definition: Workload = registry.load(registry.WORKLOADS, workload)
    if axes_values.get("backend") and COMPILE not in axes_values.get("level", ()):
        hint = "use --level compile, or remove --backend"
        raise UnusableInputError("--backend applies only to level compile", hint=hint)
    axes = [name for name in AXES if axes_values.get(name)]
    total = prod(len(axes_values[name]) for name in axes)
    if total > MAX_CELLS:
        raise UnusableInputError(f"the grid has {total:,} cells", hint="sweep fewer values at a time")
    grid = []
    for values in product(*(axes_values[name] for name in axes)):
        chosen = {"backend": INDUCTOR, **dict(zip(axes, values, strict=True))}
        if chosen.get("level") != COMPILE:
            del chosen["backend"]  # nothing to compile: cells of all backends are one
        shape = chosen.get("dataset_shape", OWN_SHAPE)
        defaults = definition.defaults_for(size=size, dataset_shape=shape)
        chosen = {**{name: defaults[name] for name in SIZES}, **chosen}
        grid.append(Cell(settings=Settings(workload=workload, device=device, size=size, **chosen)))
    return tuple(dict.fromkeys(grid))


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UnusableInputError(f"{option} {text!r} has an empty value", hint=f"use {option} A,B,C")
    return words


def _range(word: str, option: str) -> list[int]:
    match = _RANGE.fullmatch(word)
    first, last, by = (int(match[group]) for group in (1, 2, 4)) if match else (1, 0, 0)
    advance = partial(mul if match and match[3] == "*" else add, by)
    if last < first or advance(first) <= first:  # it would not end
        raise UnusableInputError(
            f"{option} {word!r} is not a range", hint=f"use {option} 8..1024*2 to double, or 16..64+16 to add"
        )
    values = [first]
    while (value := advance(values[-1])) <= last:
        values.append(value)
        if len(values) > MAX_VALUES:
            raise UnusableInputError(f"{option} {word!r} has over {MAX_VALUES} values", hint="use fewer")
    return values
