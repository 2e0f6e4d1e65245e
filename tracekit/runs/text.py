"""Text of measured values: times, sizes and rates in readable units, and names shortened to a width."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from tracekit.errors import clean

ELLIPSIS = "…"
BECAME = " → "
"""Separator between a name in the base and its name in the head."""
_MIN_PAIR_WIDTH = 12
_MAX_RANGES = 8
MISSING = "–"
PROSE = "prose"
"""Unit of a column of sentences, which wrap instead of being shortened."""
ID = "id"
"""Unit of a column of identifiers, which are never shortened so that they can be copied."""
TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_NAMESPACES = re.compile(r"\b(?:[A-Za-z_]\w*::|\(anonymous namespace\)::)+(?=[A-Za-z_({])")
SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_WORK = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"))
_SPEED = ((1, "TFLOP/s"), (1e-3, "GFLOP/s"), (1e-6, "MFLOP/s"), (1e-9, "kFLOP/s"))
_RATE = ((1, "GB/s"), (1e-3, "MB/s"), (1e-6, "kB/s"))
_TOKENS = ((1e6, "M tokens/s"), (1e3, "k tokens/s"), (1, "tokens/s"))
"""Rates above the largest unit keep it, as hardware peaks are quoted in it."""
SCALES: Final = {
    "ns": (TIMES, "ns"),
    "bytes": (SIZES, "B"),
    "FLOP": (_WORK, "FLOP"),
    "TFLOP/s": (_SPEED, "TFLOP/s"),
    "GB/s": (_RATE, "GB/s"),
    "tokens/s": (_TOKENS, "tokens/s"),
}
"""Scales by unit, largest first, and the name of the base unit."""


def shorten(text: str, width: int) -> str:
    """Shorten text to a width in terminal cells, of which a wide character takes two.

    Removes C++ namespaces first, then the middle, as both ends identify a kernel. Each side of a pair
    (`a → b`) is shortened separately.

    Example:
        >>> shorten("void at::native::vectorized_elementwise_kernel<4>", 40)
        'void vectorized_elementwise_kernel<4>'
        >>> shorten("void at::native::vectorized_elementwise_kernel<4>", 20)
        'void vecto…kernel<4>'
        >>> shorten("vectorized_elementwise_kernel → unrolled_elementwise_kernel", 30)
        'vectori…kernel → unroll…kernel'
    """
    from rich.cells import cell_len, set_cell_size  # an import of a trace needs no rich

    if cell_len(text) <= width:
        return text
    before, arrow, after = text.partition(BECAME)
    room = width - cell_len(arrow)
    if arrow and room >= _MIN_PAIR_WIDTH:
        first = max(room - room // 2, room - cell_len(after))
        left = shorten(before, first)
        return f"{left}{arrow}{shorten(after, room - cell_len(left))}"
    if "<" in text or "(" in text:  # a C++ signature, unlike an op such as aten::add
        text = without_namespaces(text)
    if cell_len(text) <= width:
        return text
    if width < 2:
        return set_cell_size(text, width)
    tail = (width - 1) // 2
    return f"{set_cell_size(text, width - 1 - tail)}{ELLIPSIS}{_end(text, tail)}"


def without_namespaces(signature: str) -> str:
    """Return a C++ signature without its namespaces.

    Example:
        >>> without_namespaces("at::native::fill<at::native::Functor>")
        'fill<Functor>'
    """
    return _NAMESPACES.sub("", signature)


def _end(text: str, width: int) -> str:
    from rich.cells import cell_len

    start = max(0, len(text) - width)
    while cell_len(text[start:]) > width or (start < len(text) and not cell_len(text[start])):
        start += 1  # does not start with a combining accent
    return text[start:]


def human(value: Any, unit: str) -> str:
    """Format a value in the unit of its column; a missing value is a dash, never zero.

    Example:
        >>> [human(1_234_567, "ns"), human(12_582_912, "bytes"), human(0.125, "share"), human(None, "ns")]
        ['1.23 ms', '12.00 MiB', '12.5%', '–']
        >>> [human(29_166_401_318_400.0, "FLOP"), human(0.0421, "TFLOP/s"), human(2039.0, "GB/s")]
        ['29.17 TFLOP', '42.10 GFLOP/s', '2,039.00 GB/s']
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(value, unit)
    return clean(str(value))


def plain(value: Any) -> Any:
    """Convert a value of Python, NumPy, pandas or DuckDB to JSON; NaN, infinity and missing values to None.

    Example:
        >>> plain(2**62), plain(Decimal("1.10")), plain(float("nan")), plain(b"a"), plain([1, None])
        (4611686018427387904, 1.1, None, '61', [1, None])
    """
    if value is None or isinstance(value, str | bool | int):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Decimal):
        if value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, date | time):
        return value.isoformat()
    return None if type(value).__name__ in {"NAType", "NaTType"} else str(value)


def _number(value: float, unit: str) -> str:
    if unit in SCALES:
        scales, base = SCALES[unit]
        fitting = (f"{value / scale:,.2f} {name}" for scale, name in scales if abs(value) >= scale)
        return next(fitting, f"{value:g} {base}")
    if unit == "share":
        return f"{100 * value:z.1f}%"
    if unit == "count":
        return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    text = str(value) if isinstance(value, int) else f"{value:,.2f}"
    return text if unit in {"", PROSE} else f"{text} {unit}"


def duration(seconds: float) -> str:
    """Format how long something takes.

    Example:
        >>> duration(75), duration(8), duration(7300)
        ('1 min 15 s', '8 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_ranks(ranks: Sequence[int]) -> str:
    """Format ranks, with ranges of consecutive ones.

    Example:
        >>> format_ranks([0, 1, 2, 5]), format_ranks([7])
        ('ranks 0–2 and 5', 'rank 7')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    if not words:
        return ""
    if len(words) > _MAX_RANGES:
        words = [*words[:_MAX_RANGES], f"{sum(map(len, runs[_MAX_RANGES:]))} more"]
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"rank{'s' * (len(ranks) > 1)} {text}"


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each leaf of nested values; lists of plain values are leaves."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        items = list(enumerate(value))
    else:
        yield name, " ".join(map(str, value)) if isinstance(value, list) else value
        return
    for key, item in items:
        yield from leaves(f"{name}.{key}" if name else str(key), item)


_SPANS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def ago(created_at: str, now: datetime) -> str:
    """Return how long ago a time was, in its largest unit; the time itself if that cannot be said.

    Example:
        >>> from datetime import UTC
        >>> now = datetime(2026, 3, 15, 12, tzinfo=UTC)
        >>> [ago(f"2026-03-{time}Z", now) for time in ("15T11:59:00", "15T09:00:00", "02T00:00:00")]
        ['1 min ago', '3 h ago', '13 d ago']
        >>> ago("2026-03-15T13:00:00Z", now)
        '2026-03-15T13:00:00Z'
    """
    try:
        seconds = int((now - datetime.fromisoformat(created_at)).total_seconds())
    except (ValueError, TypeError):  # edited by hand
        return created_at
    for span, unit in _SPANS:
        if seconds >= span:
            return f"{seconds // span} {unit} ago"
    return created_at if seconds < 0 else "now"
