"""Input and output of the suite's tables; each missing value has a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tracekit import registry
from tracekit.errors import TracekitError
from tracekit.suite.plan import CHARACTERIZATION
from tracekit.workloads.base import COMPILE, DOMAINS, EAGER, INDUCTOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis import Column
    from tracekit.sweeping.model import Settings
    from tracekit.sweeping.table import Row

GEOMEAN, OVERALL = "geomean", "overall"
REASONS = "reasons"
RATIOS = "ratios"
"""Reason for missing times in rows of geometric means."""
MODES = ("train", "infer")
FEWEST = 4
"""With 4 runs per side, 2 of 70 orders separate the sides by chance: 3%."""
FEW = f"few runs: fewer than {FEWEST} per side may differ by chance; use --repeat {FEWEST}"
UNMEASURED = "not in the suite"
LEFT_OUT = "skipped: at this size only workloads that Inductor compiles quickly are compiled"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the report.

    Attributes:
        definition: Definitions of its values.
        source: Reference for its layout.
        rows: Values by column name; `reasons` holds why values are missing, by column.
    """

    name: str
    title: str
    definition: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...]

    def told(self) -> list[dict[str, Any]]:
        """Return the rows for output to people, with short reasons in place of missing values."""
        return [
            {**row, **{name: reason.partition(":")[0] for name, reason in row[REASONS].items()}}
            for row in self.rows
        ]

    @property
    def filled(self) -> tuple[Column, ...]:
        """Columns with any value."""
        return tuple(one for one in self.columns if any(row[one.name] is not None for row in self.rows))

    def empty(self) -> dict[str, list[Column]]:
        """Return the columns without values, by reason."""
        found: dict[str, list[Column]] = {}
        for one in self.columns if self.rows else ():
            if one not in self.filled:
                every = (row[REASONS][one.name] for row in self.rows)
                known = dict.fromkeys(why.partition(": ")[2] or why for why in every if why != RATIOS)
                found.setdefault("; ".join(known) or RATIOS, []).append(one)
        return found

    def shortened(self) -> list[str]:
        """Return the distinct full reasons that cells shorten."""
        names = {one.name for one in self.filled}
        every = [why for row in self.rows for name, why in row[REASONS].items() if name in names]
        return list(dict.fromkeys(why for why in every if ":" in why))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Rows of a suite's sweep by part, and the domains of workloads."""

    parts: Mapping[str, Sequence[Row]]
    domains: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Iterable[Row]) -> Kind:
        """Sort rows by part."""
        parts: dict[str, list[Row]] = {}
        for row in found:
            parts.setdefault(row.part, []).append(row)
        names = dict.fromkeys(row.settings.workload for own in parts.values() for row in own)
        return cls(parts=parts, domains={name: _domain(name) for name in names})

    def part(self, name: str) -> Sequence[Row]:
        """Return the rows of a part, in the order of the plan."""
        return self.parts.get(name, ())

    def eager(self) -> list[Row]:
        """Return the eager rows of the characterization, by domain."""
        own = [row for row in self.part(CHARACTERIZATION) if row.settings.level == "eager"]
        return sorted(own, key=lambda row: _place(self.domains[row.settings.workload]))

    def ways(self) -> list[str]:
        """Return the execution modes of the characterization other than eager; compile if there are none."""
        own = (row.settings for row in self.part(CHARACTERIZATION))
        return list(dict.fromkeys(way(one) for one in own if one.level != EAGER)) or [COMPILE]

    def at(self, row: Row, name: str) -> Row | None:
        """Return the row of the same settings in another execution mode."""
        own = (one for one in self.part(CHARACTERIZATION) if way(one.settings) == name)
        return next((one for one in own if _eagerly(one.settings) == row.settings), None)

    def like(self, row: Row, **changes: Any) -> Row | None:
        """Return the row whose settings differ only by the given changes."""
        wanted = replace(row.settings, **changes)
        every = (one for own in self.parts.values() for one in own)
        return next((one for one in every if one.settings == wanted), None)


def way(settings: Settings) -> str:
    """Describe an execution mode: the level, and the backend unless it is Inductor.

    Example:
        >>> from tracekit.sweeping.model import Settings
        >>> way(Settings(workload="w", resolution=8, batch_size=1, level="compile", backend="aot_eager"))
        'compile (aot_eager)'
    """
    known = settings.backend in {None, INDUCTOR}
    return settings.level if known else f"{settings.level} ({settings.backend})"


def left_out(workload: str, name: str, *, measured: bool) -> str:
    """Return why a suite lacks a row of a workload in an execution mode."""
    if not measured:
        return UNMEASURED
    level = name.partition(" ")[0]
    try:
        known = level in registry.load(registry.WORKLOADS, workload).levels
    except TracekitError:  # no longer installed
        return UNMEASURED
    return LEFT_OUT if known else f"no level {level}"


def filled(row: dict[str, Any], columns: Iterable[Column], why: str | Mapping[str, str]) -> dict[str, Any]:
    """Return a row with a reason for each missing value.

    Args:
        row: Values by column.
        columns: Columns of the table.
        why: The reason, or the reason by column.

    Example:
        >>> from tracekit.analysis import Column
        >>> filled({"a": 1}, [Column("a", "", ""), Column("b", "", "")], "no GPU")
        {'a': 1, 'b': None, 'reasons': {'b': 'no GPU'}}
    """
    values = {column.name: row.get(column.name) for column in columns}
    missing = [name for name, value in values.items() if value is None]
    reasons = {name: why if isinstance(why, str) else why.get(name, UNMEASURED) for name in missing}
    return {**values, REASONS: reasons}


def why(row: Row | None, *, device: bool = False) -> str:
    """Return why a row lacks a value."""
    if row is None:
        return UNMEASURED
    if row.n and device:
        return row.device_reason or "no device recorded"
    return f"{row.outcome}: {row.reason}" if row.reason else "not recorded"


def apart(a: Row, b: Row) -> bool | None:
    """Tell whether the runs of two rows do not overlap; None if there are too few runs."""
    one, other = a.run_step_ns, b.run_step_ns
    if min(len(one), len(other)) < FEWEST:
        return None
    return max(one) < min(other) or max(other) < min(one)


def geomean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the known positive values; None if there are none.

    Example:
        >>> geomean([1.0, 4.0, None])
        2.0
    """
    known = [value for value in values if value]
    return math.exp(fmean(math.log(value) for value in known)) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def ratio(above: float | None, below: float | None) -> float | None:
    """Return the ratio if both values are known."""
    return above / below if above is not None and below else None


def _eagerly(settings: Settings) -> Settings:
    return replace(settings, level=EAGER, backend=None)


def _domain(name: str) -> str:
    try:
        return str(registry.load(registry.WORKLOADS, name).domain)
    except TracekitError:  # no longer installed
        return "other"


def _place(domain: str) -> int:
    return DOMAINS.index(domain) if domain in DOMAINS else len(DOMAINS)
