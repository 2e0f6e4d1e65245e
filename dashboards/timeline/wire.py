"""Binary response: a header with the array offsets, followed by the arrays."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .draw import Drawn, Window

MAGIC = b"TKT1"
_ALIGNED = 8
_NAME = "name"


def pack(window: Window, drawn: Sequence[Drawn], names: Sequence[str], **more: Any) -> bytes:
    """Encode lanes as little-endian bytes, with the names they use."""
    used, renumbered = _used(drawn, len(names))
    body: list[bytes] = []
    size = 0
    lanes = []
    for one in drawn:
        at = {}
        arrays = dict(one.arrays)
        if _NAME in arrays:
            arrays[_NAME] = renumbered[arrays[_NAME]]
        for name, array in arrays.items():
            at[name] = size
            data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            body += [data, bytes(-len(data) % _ALIGNED)]
            size += len(data) + len(body[-1])
        length = len(next(iter(arrays.values())))
        lanes.append({"id": one.lane, "mode": one.mode, "n": length, "at": at})
    head = {"from": window.start, "to": window.end, "width": window.width, **more}
    head |= {"names": [names[number] for number in used], "lanes": lanes}
    return b"".join([*_header(head), *body])


def _header(head: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    text = json.dumps(head, ensure_ascii=False).encode()
    text += b" " * (-(len(MAGIC) + 4 + len(text)) % _ALIGNED)
    return MAGIC, struct.pack("<I", len(text)), text


def _used(drawn: Sequence[Drawn], count: int) -> tuple[list[int], npt.NDArray[np.uint32]]:
    """Return the used names, and their new numbers."""
    used = np.zeros(count, np.bool_)
    for one in drawn:
        if _NAME in one.arrays:
            used[one.arrays[_NAME]] = True
    numbers: npt.NDArray[np.int64] = np.cumsum(used) - 1
    return np.flatnonzero(used).tolist(), numbers.astype(np.uint32)
