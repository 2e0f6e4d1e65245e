"""Text columns from codes: each chunk's distinct texts, decoded once for as long as their interner lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.ingest.kineto.columns import compact_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.ingest.kineto.scan.interner import Interner

Ints: TypeAlias = npt.NDArray[np.int64]


def distinct(codes: Ints, count: int) -> tuple[Ints, Ints]:
    """The codes that occur, and the place of each row's among them, -1 where it has none.

    Example:
        >>> distinct(np.array([5, -1, 2, 5]), 6)
        (array([2, 5]), array([ 1, -1,  0,  1]))
    """
    occurs = np.zeros(count + 1, np.bool_)
    occurs[codes] = True  # -1 marks the place behind the last
    occurs[-1] = False
    found = np.flatnonzero(occurs)
    place = np.full(count + 1, -1)
    place[found] = np.arange(len(found))
    return found, place[codes]


def coded(places: Ints, values: Sequence[str]) -> pa.DictionaryArray:
    """A text column from each row's place among values, -1 for null."""
    indices = pa.array(places, pa.int32(), mask=places < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))


class Texts:
    """What the codes of an interner stand for, as a string's text and as compact JSON."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self._strings: dict[int, str] = {}
        self._fragments: dict[int, str] = {}

    @property
    def count(self) -> int:
        """How many codes there are."""
        return self._interner.count

    def raw(self, code: int) -> bytes:
        """The text as it stands in the file; nothing for -1."""
        return self._interner.bytes_of(code) if code >= 0 else b""

    def strings(self, codes: Ints) -> list[str]:
        """What strings say."""
        return self._of(codes, self._strings, _string)

    def fragments(self, codes: Ints) -> list[str]:
        """JSON, written compactly."""
        return self._of(codes, self._fragments, compact_json)

    def _of(self, codes: Ints, known: dict[int, str], decode: Callable[[bytes], str]) -> list[str]:
        found = []
        for code in codes.tolist():
            text = known.get(code)
            if text is None:
                text = known[code] = decode(self.raw(code))
            found.append(text)
        return found


def _string(raw: bytes) -> str:
    text: str = msgspec.json.decode(b'"' + raw + b'"') if b"\\" in raw else raw.decode()
    return text
