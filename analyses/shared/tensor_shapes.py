"""Shapes and dtypes of the inputs of ops, as the profiler writes them.

`input_shapes` is compact JSON of one entry per input: `[8,3]` for a tensor, `[[8,3],[4]]` for a list of
tensors, `[]` for a tensor without dimensions and for non-tensors. `input_dtypes` distinguishes these: it has
the dtype of a tensor (`float`, `long int`, `c10::Half`), else `Scalar`, `TensorList`, a kind of list, or an
empty text. Texts repeat, so callers parse each distinct one once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Shape: TypeAlias = tuple[int, ...]
Input: TypeAlias = Shape | list[Shape] | None
_CPP_TYPES = {
    1: "bool|char|signed char|unsigned char|c10::qint8|c10::quint8|c10::Float8_e4m3fn|c10::Float8_e4m3fnuz"
    "|c10::Float8_e5m2|c10::Float8_e5m2fnuz|c10::Float8_e8m0fnu",
    2: "short|short int|unsigned short|c10::Half|c10::BFloat16",
    4: "int|unsigned int|float|c10::qint32|c10::complex<c10::Half>",
    8: "long|long int|long long|__int64|unsigned long|double|c10::complex<float>",
    16: "c10::complex<double>",
}
"""C++ type names, as compilers spell them in the trace, by bytes per element."""
_SCALAR_TYPES = {
    1: "byte|char|bool|float8_e4m3fn|float8_e5m2",
    2: "half|bfloat16|short",
    4: "int|float",
    8: "long|double",
}
"""Names of scalar types that collectives are recorded with, in lower case, by bytes per element."""
_CPP_BYTES, _SCALAR_BYTES = (
    {name: size for size, names in types.items() for name in names.split("|")}
    for types in (_CPP_TYPES, _SCALAR_TYPES)
)


@dataclass(frozen=True)
class Tensor:
    """One tensor among the inputs of an op."""

    shape: Shape  # its dimensions
    dtype: str  # its dtype as the profiler names it, empty if not recorded

    @property
    def elements(self) -> int:
        """Number of elements."""
        return numel(self.shape)

    @property
    def bytes(self) -> int | None:
        """Bytes of its elements, None for an unknown dtype."""
        size = item_bytes(self.dtype)
        return None if size is None else self.elements * size


def numel(shape: Sequence[int]) -> int:
    """Number of elements; a tensor without dimensions has one.

    Example:
        >>> numel((32, 3, 256, 256)), numel(()), numel((4, 0))
        (6291456, 1, 0)
    """
    return math.prod(shape)


def item_bytes(dtype: str) -> int | None:
    """Bytes of one element, None if not a tensor dtype.

    Example:
        >>> item_bytes("c10::BFloat16"), item_bytes("BFloat16"), item_bytes("Scalar")
        (2, 2, None)
    """
    name = dtype.strip()
    return _CPP_BYTES.get(name) or _SCALAR_BYTES.get(name.lower())


def parse_shapes(text: str) -> list[Input]:
    """One entry per input: a shape, or the shapes of a list of tensors; empty for an unusable text.

    None is an entry that is not made of integers.

    Example:
        >>> parse_shapes("[[8,3],[],[[2],[4,5]]]")
        [(8, 3), (), [(2,), (4, 5)]]
    """
    return [_entry(entry) for entry in _list(text)]


def parse_dtypes(text: str) -> list[str]:
    """One name per input; empty for an unusable text.

    Example:
        >>> parse_dtypes('["float","Scalar",""]')
        ['float', 'Scalar', '']
    """
    return [entry if isinstance(entry, str) else "" for entry in _list(text)]


def tensors(shapes: str, dtypes: str) -> list[Tensor | None]:
    """Each input as a tensor, None if it is not known to be one.

    Without dtypes an input with dimensions is a tensor of unknown dtype. Lists of tensors are None.

    Example:
        >>> tensors("[[8,3],[],[]]", '["float","double","Scalar"]')
        [Tensor(shape=(8, 3), dtype='float'), Tensor(shape=(), dtype='double'), None]
    """
    entries, names = parse_shapes(shapes), parse_dtypes(dtypes)
    if not names:
        return [Tensor(entry, "") if isinstance(entry, tuple) and entry else None for entry in entries]
    names += [""] * (len(entries) - len(names))
    return [
        Tensor(entry, name) if isinstance(entry, tuple) and (item_bytes(name) or entry) else None
        for entry, name in zip(entries, names, strict=False)
    ]


def _list(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):  # a placeholder, or truncated by an old profiler
        return []
    return value if isinstance(value, list) else []


def _entry(entry: Any) -> Input:
    if not isinstance(entry, list):
        return None
    if entry and all(isinstance(nested, list) for nested in entry):
        shapes = [_shape(nested) for nested in entry]
        return None if None in shapes else [shape for shape in shapes if shape is not None]
    return _shape(entry)


def _shape(entry: list[Any]) -> Shape | None:
    return tuple(entry) if all(isinstance(size, int) for size in entry) else None
