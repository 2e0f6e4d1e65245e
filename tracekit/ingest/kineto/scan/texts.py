"""Text columns from codes: each chunk's distinct texts, decoded once for as long as their interner lives."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.ingest.kineto import names
from tracekit.ingest.kineto.columns import compact_json
from tracekit.ingest.kineto.scan import layout
from tracekit.ingest.kineto.scan.interner import MOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.ingest.kineto.scan.interner import Interner
    from tracekit.ingest.kineto.scan.native import Code
    from tracekit.schema import HostKind

Ints: TypeAlias = npt.NDArray[np.int64]


class Known:
    """Something about each code, found out when it is first asked for.

    Example:
        >>> lengths = Known(lambda code: 10 * code, np.int64)
        >>> lengths.of(np.array([2, 5]))
        array([20, 50])
    """

    def __init__(self, find: Callable[[int], Any], kind: type[np.generic]) -> None:
        self._find = find
        self._values = np.empty(0, kind)
        self._there = np.empty(0, np.bool_)

    def of(self, codes: Ints) -> npt.NDArray[Any]:
        """It, of some codes."""
        missing = int(codes.max(initial=-1)) + 1 - len(self._there)
        if missing > 0:
            more = missing + len(self._there)
            self._values = np.append(self._values, np.empty(more, self._values.dtype))
            self._there = np.append(self._there, np.zeros(more, np.bool_))
        for code in codes[~self._there[codes]].tolist():
            self._values[code] = self._find(code)
        self._there[codes] = True
        return self._values[codes]


class Texts:
    """What the codes of an interner stand for.

    Attributes:
        strings: What strings say.
        encoded: The same in UTF-8, as it is stored.
        fragments: JSON, written compactly, in UTF-8.
        escaped: Whether a string is written with escapes.
        kinds: Kinds of the host whose members a name may make another kind of; for each, which.
    """

    def __init__(self, interner: Interner, code: Code) -> None:
        self._interner, self._code = interner, code
        self._latest = np.full(MOST, -1)
        self.strings = Known(lambda code: _string(self.raw(code)), np.object_)
        self.encoded = Known(lambda code: _string(self.raw(code)).encode(), np.object_)
        self.fragments = Known(lambda code: compact_json(self.raw(code)), np.object_)
        self.escaped = Known(lambda code: b"\\" in self.raw(code), np.bool_)
        self.kinds = {kind: Known(partial(self._kind, kind), np.int64) for kind in names.NAMED_KINDS}

    def _kind(self, kind: HostKind, code: int) -> int:
        return layout.HOST_KINDS.index(names.host_kind(kind, _string(self.raw(code))))

    def distinct(self, codes: Ints) -> tuple[Ints, Ints]:
        """The codes that occur, as they come, and the place of each row's among them, -1 for none."""
        codes = np.ascontiguousarray(codes)
        place, found = np.empty_like(codes), np.empty_like(codes)
        addresses = [column.ctypes.data for column in (codes, place, found, self._latest)]
        occur = self._code.distinct(len(codes), *addresses)
        return found[:occur], place

    @property
    def count(self) -> int:
        """How many codes there are."""
        return self._interner.count

    def raw(self, code: int) -> bytes:
        """The text as it stands in the file; nothing for -1."""
        return self._interner.bytes_of(code) if code >= 0 else b""


def _string(raw: bytes) -> str:
    text: str = msgspec.json.decode(b'"' + raw + b'"') if b"\\" in raw else raw.decode()
    return text
