"""Copy sizes, and copy rates against the link's ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.render import human

from .axis import whole
from .bins import histogram
from .points import Dots, Limit, points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd


def sizes(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Draw the number of copies by size in powers of two, per direction.

    Args:
        tables: The `sizes` table of each direction, by its name.
    """
    counts_of = {name: _counts(table) for name, table in tables.items()}
    known = sorted({low for counts in counts_of.values() for low in counts if low >= 0})
    lows = _doubled(known)
    unknown = any(-1 in counts for counts in counts_of.values())
    lower: list[int | None] = [*lows, *([None] if unknown else [])]
    upper: list[int | None] = [*(2 * low or 1 for low in lows), *([None] if unknown else [])]
    counted = {
        name: [counts.get(-1 if low is None else low, 0) for low in lower]
        for name, counts in counts_of.items()
    }
    figure = histogram(lower, upper, counted, bin_unit="bytes", title="copies", x_title="copy size")
    figure["layout"]["height"] = 380
    figure["layout"]["xaxis"]["ticktext"] = ["unknown" if low is None else _least(low) for low in lower]
    return figure


def _least(low: int) -> str:
    return human(low, "bytes").replace(".00", "")


def _counts(table: pd.DataFrame) -> dict[int, int]:
    lows = table["from_bytes"].fillna(-1).astype("int64").tolist()
    return dict(zip(lows, table["copies"].tolist(), strict=True))


def _doubled(lows: Sequence[int]) -> list[int]:
    """Return every power of two from the smallest to the largest, and 0 if it occurs."""
    positive = [low for low in lows if low]
    if not positive:
        return list(lows)
    exponents = range(min(positive).bit_length() - 1, max(positive).bit_length())
    return [*([0] if 0 in lows else []), *(1 << exponent for exponent in exponents)]


def rates(groups: Mapping[str, pd.DataFrame], ceilings: Mapping[str, float]) -> dict[str, Any]:
    """Draw rate over size of groups of equal copies, by direction and memory, with the link's ceilings.

    Args:
        groups: The `groups` table of each direction, by its name; rows without size or rate are left out.
        ceilings: Known ceilings in GB/s, by direction.
    """
    kinds = [
        _kind(f"{direction} {memory}", rows)
        for direction, table in groups.items()
        for memory, rows in _known(table).groupby("memory", sort=True, observed=True)
    ]
    every = [size for kind in kinds for size in kind.x]
    ends = [min(every), max(every)] if every else [1, 2]
    limits = [
        Limit(f"{name} ceiling {human(rate, 'GB/s')}", ends, [rate, rate]) for name, rate in ceilings.items()
    ]
    return points(
        kinds,
        limits,
        x_title="copy size",
        y_title="GB/s",
        x_ticks=_size_ticks(ends),
    )


def _known(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["bytes_each"].fillna(0) > 0) & (table["gb_per_s"].fillna(0) > 0)]


def _kind(name: str, rows: pd.DataFrame) -> Dots:
    longest = float(rows["sum_ns"].max()) or 1.0
    sizes_ = [int(size) for size in rows["bytes_each"]]
    rows_of = zip(rows["op"], sizes_, rows["copies"], rows["gb_per_s"], strict=True)
    return Dots(
        name,
        sizes_,
        [float(rate) for rate in rows["gb_per_s"]],
        [
            f"{whole(str(op) or '(no op recorded)')}<br>{human(int(count), 'count')} × {human(size, 'bytes')}"
            f"<br>{human(float(rate), 'GB/s')}<br>{name}"
            for op, size, count, rate in rows_of
        ],
        [float(each) / longest for each in rows["sum_ns"]],
    )


def _size_ticks(ends: Sequence[float]) -> tuple[list[float], list[str]]:
    least, most = int(ends[0]).bit_length() - 1, int(ends[1]).bit_length()
    every = max(2, (most - least) // 8 or 1)
    values = [float(1 << exponent) for exponent in range(least - least % 2, most + 1, every)]
    return values, [_least(int(value)) for value in values]
