"""Grids: parsing of the values of each axis, and the resulting cells."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any

from tracekit import registry
from tracekit.errors import UnusableInputError
from tracekit.sweeping.model import Cell, Settings
from tracekit.workloads.base import COMPILE, INDUCTOR, OWN_SHAPE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.workloads.base import Workload

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
MOST_VALUES = 1000
MOST_CELLS = 100_000
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
    found: set[int] = set()
    for word in _words(text, option):
        found |= set(_range(word, option) if ".." in word else [_number(word, option)])
    return tuple(sorted(found))


def threads(text: str, option: str = "--threads") -> tuple[int | None, ...]:
    """Parse numbers of threads, with `all` for torch's default.

    Example:
        >>> threads("all,1")
        (None, 1)
    """
    words = _words(text, option)
    plain = [word for word in words if word != ALL]
    given = numbers(",".join(plain), option) if plain else ()
    return (*([None] if ALL in words else []), *given)


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
    workload: str, given: Mapping[str, Sequence[Any]], *, device: str = "auto", size: str = "default"
) -> tuple[Cell, ...]:
    """Return the cells of a grid; axes that are not given keep the workload's defaults.

    Args:
        workload: Registered name.
        given: Values by axis.
        device: Device of all cells.
        size: Preset of the workload's `sizes`, for axes that are not given.

    Raises:
        PluginError: There is no such workload.
        UnusableInputError: There are too many cells, the workload has no such size, or a backend has
            nothing to compile.
    """
    known: Workload = registry.load(registry.WORKLOADS, workload)
    axes = [name for name in AXES if given.get(name)]
    if given.get("backend") and COMPILE not in given.get("level", ()):
        raise UnusableInputError(
            "--backend applies only to level compile",
            hint="use --level compile, or remove --backend",
        )
    found = []
    total = 1
    for name in axes:
        total *= len(given[name])
    if total > MOST_CELLS:
        raise UnusableInputError(f"the grid has {total:,} cells", hint="sweep fewer values at a time")
    for values in product(*(given[name] for name in axes)):
        chosen = _with_backend(dict(zip(axes, values, strict=True)))
        sizes = known.defaults_for(size=size, dataset_shape=chosen.get("dataset_shape", OWN_SHAPE))
        sizes = {name: sizes[name] for name in SIZES}
        found.append(
            Cell(settings=Settings(workload=workload, device=device, size=size, **{**sizes, **chosen}))
        )
    return tuple(dict.fromkeys(found))


def _with_backend(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the backend for level compile, else None."""
    if chosen.get("level") == COMPILE:
        return {"backend": INDUCTOR, **chosen}
    return {name: value for name, value in chosen.items() if name != "backend"}


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UnusableInputError(f"{option} {text!r} has an empty value", hint=f"use {option} A,B,C")
    return words


def _number(word: str, option: str) -> int:
    if not re.fullmatch(r"\d{1,12}", word):
        raise UnusableInputError(
            f"{option} cannot be {word!r}", hint=f"use whole numbers, as in {option} 8,16,32 or 8..1024*2"
        )
    return int(word)


def _range(word: str, option: str) -> list[int]:
    match = _RANGE.fullmatch(word)
    first, last, by = (int(match[place]) for place in (1, 2, 4)) if match else (0, 0, 0)
    grows = bool(match) and (by > 1 and first > 0 if match and match[3] == "*" else by > 0)
    if not match or not grows or last < first:
        raise UnusableInputError(
            f"{option} {word!r} is not a range", hint=f"use {option} 8..1024*2 to double, or 16..64+16 to add"
        )
    found = [first]
    while (value := found[-1] * by if match[3] == "*" else found[-1] + by) <= last:
        found.append(value)
        if len(found) > MOST_VALUES:
            raise UnusableInputError(f"{option} {word!r} has over {MOST_VALUES} values", hint="use fewer")
    return found
