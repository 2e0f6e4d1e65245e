"""Columns of a chunk: convert lists of decoded values to arrays; kinds of events, names of copies, times."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from itertools import count, repeat
from operator import is_
from typing import Any

import msgspec
import numpy as np

from tracekit.ingest.spool.rows import NONE, Bools, Column, Ints, Words
from tracekit.ingest.spool.text_columns import LATEST_NS
from tracekit.runs.range_names import COLLECTION
from tracekit.schema import CopyKind, DeviceKind, HostKind, Memory

_DIGITS = re.compile(r"-?\d+")
_INT64 = 1 << 63


def integers(values: Sequence[Any]) -> Column:
    """Convert to int64: parses text, keeps the bits of unsigned values; other values are missing.

    Example:
        >>> integers([1, None, "7", 2**64 - 1, "x"])
        Column(values=array([ 1, -1,  7, -1, -1]), missing=array([False,  True, False, False,  True]))
    """
    missing = _missing_mask(values)
    filled = [NONE if value is None else value for value in values] if missing.any() else values
    try:
        return Column(np.fromiter(filled, np.int64, len(values)), missing)
    except (TypeError, ValueError, OverflowError):
        return integers([_integer(value) for value in values])


def _missing_mask(values: Sequence[Any]) -> Bools:
    return np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values))


def _integer(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if -_INT64 <= number < _INT64:
        return number
    return number - 2 * _INT64 if _INT64 <= number < 2 * _INT64 else None


def thread_ids(values: Sequence[Any]) -> Column:
    """Convert process and thread ids to int64: words become their digits, or a new number."""
    try:
        return Column(np.fromiter(values, np.int64, len(values)))
    except (TypeError, ValueError, OverflowError):
        return Column(np.array([_thread_id(value) for value in values], np.int64))


def _thread_id(value: Any) -> int:
    number = _integer(value)
    if number is not None:
        return number
    text = str(value or "")
    digits = _DIGITS.search(text)
    return int(digits.group()[-18:]) if digits else zlib.crc32(text.encode())


def devices(values: Sequence[Any]) -> Column:
    """Convert device indices to int64 in the range of 32 bits; invalid ones are -1, words without digits 0.

    Example:
        >>> devices([0, "3", 2**32 - 1, "CUDA functions"]).values
        array([ 0,  3, -1,  0])
    """
    numbered = [0 if isinstance(value, str) and not _DIGITS.search(value) else value for value in values]
    return Column(fitting_devices(thread_ids(numbered).values))


def fitting_devices(numbers: Ints) -> Ints:
    """Return device indices in the range of 32 bits; invalid ones are -1."""
    return np.where((numbers >= -1) & (numbers < 1 << 31), numbers, -1)


def floats(values: Sequence[Any]) -> Column:
    """Convert to float64; other values are missing.

    Example:
        >>> floats([1, 0.5, "x"])
        Column(values=array([ 1. ,  0.5, -1. ]), missing=array([False, False,  True]))
    """
    numbers = [_float(value) for value in values]
    filled = [NONE if value is None else value for value in numbers]
    return Column(np.array(filled, np.float64), _missing_mask(numbers))


def _float(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def triples(values: Sequence[Any]) -> list[Column]:
    """Return x, y and z of grids or blocks, with missing ones."""
    complete = [value if type(value) is list and len(value) == 3 else (None,) * 3 for value in values]
    return [integers([triple[axis] for triple in complete]) for axis in range(3)]


def _codes(absent: Any) -> defaultdict[Any, int]:
    """Return a dictionary that numbers new keys; `absent` has no number."""
    return defaultdict(count().__next__, {absent: NONE})


def texts(values: Sequence[Any]) -> Words:
    """Convert to strings; None is null, other values become their text.

    Example:
        >>> texts(["a", "b", "a", None])
        (array([ 0,  1,  0, -1]), [b'a', b'b'])
    """
    codes = _codes(absent=None)
    try:
        numbers = [codes[value] for value in values]
    except TypeError:  # a list or an object instead of a name
        return texts([None if value is None else str(value) for value in values])
    return np.array(numbers), [str(value).encode() for value in codes if value is not None]


def json_texts(values: Sequence[msgspec.Raw]) -> Words:
    """Return compact JSON fragments, independent of the file's white space."""
    codes = _codes(absent=b"")
    numbers = [codes[bytes(value)] for value in values]
    return np.array(numbers), [compact_json(text) for text in codes if text]


def compact_json(text: bytes) -> bytes:
    """Remove white space from JSON; return invalid JSON unchanged."""
    try:
        return _utf8(msgspec.json.format(text, indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return _utf8(text)


def _utf8(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()


DEVICE_CATEGORIES = {
    **dict.fromkeys(("kernel", "Kernel"), DeviceKind.KERNEL),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), DeviceKind.MEMCPY),
    **dict.fromkeys(("gpu_memset", "Memset"), DeviceKind.MEMSET),
    "cuda_sync": DeviceKind.SYNC,
}
HOST_CATEGORIES = {
    **dict.fromkeys(("cpu_op", "Operator"), HostKind.OP),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime"), HostKind.RUNTIME),
    **dict.fromkeys(("xpu_runtime", "xpu_driver"), HostKind.RUNTIME),
    **dict.fromkeys(("privateuse1_runtime", "privateuse1_driver"), HostKind.RUNTIME),
    **dict.fromkeys(("glow_runtime", "hpu_op", "mtia_runtime"), HostKind.RUNTIME),
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "overhead": HostKind.OVERHEAD,
}
MTIA_DEVICE = "mtia_ccp_events"
"""Category of the work of an MTIA device, whose kind is in the name and whose direction is an argument."""
MTIA_KINDS = {
    "dma_request": DeviceKind.MEMCPY,
    "event_record": DeviceKind.SYNC,
    "event_wait": DeviceKind.SYNC,
}
NAMED_KINDS = (HostKind.OP, HostKind.RUNTIME)
"""Kinds of host events that `host_kind` may change."""

DERIVED_CATEGORIES = frozenset({"gpu_user_annotation", "Trace", "ac2g", "fwdbwd"})
"""Categories of events that repeat others, and are skipped."""

KNOWN_PHASES = frozenset({"X", "M", "C", "s", "t", "f", "i", "I", "R"})
"""Phases that are read or skipped without a diagnostic; others are counted as lost."""

MAX_DEVICES = 64
"""Devices of a machine: as process ids they are smaller than those of processes."""
LEGACY_DEVICE = "CUDA functions"
"""Begin of the process id of kernels in traces of torch's legacy autograd profiler."""

MEMORY_EVENT = "[memory]"

_ANNOTATION = re.compile(COLLECTION + r"|ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)|nccl:|## ")
_BLOCKING = re.compile(r"(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|synchronize(Stream)?$")
_COPY = re.compile(r"([HDA]to[HDA]|PtoP)")  # direction in the names of CUPTI, then in those of HIP
_COPY_HIP = re.compile(r"Copy(Host|Device)To(Host|Device)")
# Intel's names: memory of the program, host (pinned), device or shared memory
_COPY_PTI = re.compile(r"\(([MHDS])2([MHDS])\b")
_PTI_MEMORIES = {"M": Memory.PAGEABLE, "H": Memory.PINNED, "D": Memory.DEVICE, "S": Memory.UNIFIED}
_MEMORY = re.compile(r"\((\w+)\s*->\s*(\w+)\)")  # source and destination memory in the names of CUPTI
COPY_KINDS = {  # arrays (A) are memory of a device
    **dict.fromkeys(("HtoD", "HtoA", "HostToDevice", "HOST_TO_DEVICE", "MD", "HD"), CopyKind.H2D),
    **dict.fromkeys(("DtoH", "AtoH", "DeviceToHost", "DEVICE_TO_HOST", "DM", "DH"), CopyKind.D2H),
    **dict.fromkeys(("DtoD", "DeviceToDevice", "DEVICE_TO_DEVICE", "DD"), CopyKind.D2D),
    **dict.fromkeys(("AtoA", "AtoD", "DtoA"), CopyKind.D2D),
    **dict.fromkeys(("HtoH", "HostToHost", "MH", "HM", "MM", "HH"), CopyKind.H2H),
    "PtoP": CopyKind.P2P,
}
_MEMORIES = {
    "Pageable": Memory.PAGEABLE,
    "Pinned": Memory.PINNED,
    "Device": Memory.DEVICE,
    "Managed": Memory.UNIFIED,
    "Unified": Memory.UNIFIED,
    "Array": Memory.ARRAY,
}


@lru_cache(maxsize=4096)
def host_kind(kind: HostKind, name: str) -> HostKind:
    """Return the kind of a host event: in old traces annotations are operators; blocking calls are `sync`."""
    if kind is HostKind.OP and _ANNOTATION.match(name):
        return HostKind.ANNOTATION
    if kind is HostKind.RUNTIME and _BLOCKING.match(name):
        return HostKind.SYNC
    return kind


@lru_cache(maxsize=4096)
def copy_ends(name: str) -> tuple[CopyKind, Memory, Memory]:
    """Return direction, source memory and destination memory of a copy, from its name.

    Both decoders call it. What the name does not say is unknown, also the memory of a device.

    Example:
        >>> [str(part) for part in copy_ends("Memcpy HtoD (Pageable -> Device)")]
        ['H2D', 'pageable', 'device']
        >>> [str(part) for part in copy_ends("zeCommandListAppendMemoryCopy(D2H)")]
        ['D2H', 'device', 'pinned']
    """
    if letters := _COPY_PTI.search(name):
        source, target = letters.groups()
        kind = CopyKind.P2P if "P2P" in name else COPY_KINDS.get(source + target, CopyKind.UNKNOWN)
        return kind, _PTI_MEMORIES[source], _PTI_MEMORIES[target]
    match = _COPY.search(name) or _COPY_HIP.search(name)
    word = match.group().removeprefix("Copy") if match else ""
    ends = _MEMORY.search(name)
    source, target = (ends[1], ends[2]) if ends else ("", "")
    return (
        COPY_KINDS.get(word, CopyKind.UNKNOWN),
        _MEMORIES.get(source, Memory.UNKNOWN),
        _MEMORIES.get(target, Memory.UNKNOWN),
    )


_DECIMALS = 3  # digits after the decimal point down to nanoseconds
_TIME_DIGITS = 19


def nanoseconds(texts: Sequence[memoryview | bytes]) -> tuple[Ints, Bools]:
    """Parse JSON numbers of microseconds.

    Args:
        texts: Buffers of JSON text, one number each; empty where the event has none.

    Returns:
        int64 nanoseconds (0 where unusable), and a mask that is True where the text is a usable number.
        Digits below a nanosecond are rounded half to even.

    Example:
        >>> nanoseconds([b"1712191111.123", b"", b'"12.5"'])
        (array([1712191111123,             0,         12500]), array([ True, False,  True]))
    """
    values = [_parse_microseconds(bytes(text)) for text in texts]
    return (
        np.array([value or 0 for value in values], np.int64),
        np.array([value is not None for value in values], np.bool_),
    )


def _parse_microseconds(text: bytes) -> int | None:
    integral, _, decimals = text.partition(b".")
    digits = integral + decimals.ljust(_DECIMALS, b"0")
    plain = integral and len(decimals) <= _DECIMALS and len(digits) <= _TIME_DIGITS and digits.isdigit()
    value = int(digits) if plain else _exact(text)
    return value if value is not None and abs(value) < LATEST_NS else None


def _exact(text: bytes) -> int | None:
    """Parse a number in any other notation."""
    try:
        scaled = Decimal(text.decode("ascii").strip('" \t\r\n')).scaleb(_DECIMALS)
        if not scaled.is_finite() or (scaled and scaled.adjusted() > _TIME_DIGITS):
            return None  # else int() would spell out 1e1000000
        return int(scaled.to_integral_value(ROUND_HALF_EVEN))
    except (ArithmeticError, UnicodeDecodeError, ValueError):
        return None
