"""What a suite's tables are made from and of: no cell is empty without a reason."""

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
"""Why a geometric mean of ratios stands beside no time."""
MODES = ("train", "infer")
FEWEST = 4
"""Of two times 4 runs in any order, 2 of 70 orders have all of one side first: 3%."""
FEW = f"few runs: fewer than {FEWEST} of a side, which may lie apart by chance; take --repeat {FEWEST}"
UNMEASURED = "not in the suite"
LEFT_OUT = "left out: at this size only what Inductor compiles soon is compiled"


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of the report.

    Attributes:
        definition: How its numbers are defined.
        source: The study whose form it has.
        rows: By column name; `reasons` holds, by column, why a value is missing.
    """

    name: str
    title: str
    definition: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...]

    def told(self) -> list[dict[str, Any]]:
        """The rows for people: a reason in a word or two stands where a value is missing."""
        return [
            {**row, **{name: reason.partition(":")[0] for name, reason in row[REASONS].items()}}
            for row in self.rows
        ]

    @property
    def filled(self) -> tuple[Column, ...]:
        """The columns of which any row has a value."""
        return tuple(one for one in self.columns if any(row[one.name] is not None for row in self.rows))

    def empty(self) -> dict[str, list[Column]]:
        """The columns of which no row has a value, by the reasons for it."""
        found: dict[str, list[Column]] = {}
        for one in self.columns if self.rows else ():
            if one not in self.filled:
                every = (row[REASONS][one.name] for row in self.rows)
                known = dict.fromkeys(why.partition(": ")[2] or why for why in every if why != RATIOS)
                found.setdefault("; ".join(known) or RATIOS, []).append(one)
        return found

    def shortened(self) -> list[str]:
        """The reasons that the cells of filled columns shorten, each once."""
        names = {one.name for one in self.filled}
        every = [why for row in self.rows for name, why in row[REASONS].items() if name in names]
        return list(dict.fromkeys(why for why in every if ":" in why))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The rows of a suite's sweep by part, and the domain of each workload."""

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
        """Rows of one part, in the order of the plan."""
        return self.parts.get(name, ())

    def eager(self) -> list[Row]:
        """Of the characterization, what ran eagerly, domain by domain."""
        own = [row for row in self.part(CHARACTERIZATION) if row.settings.level == "eager"]
        return sorted(own, key=lambda row: _place(self.domains[row.settings.workload]))

    def ways(self) -> list[str]:
        """Of the characterization, the ways to run a model other than eager; compiled where there is none."""
        own = (row.settings for row in self.part(CHARACTERIZATION))
        return list(dict.fromkeys(way(one) for one in own if one.level != EAGER)) or [COMPILE]

    def at(self, row: Row, name: str) -> Row | None:
        """The row that ran in another way what this one ran eagerly."""
        own = (one for one in self.part(CHARACTERIZATION) if way(one.settings) == name)
        return next((one for one in own if _eagerly(one.settings) == row.settings), None)

    def like(self, row: Row, **changes: Any) -> Row | None:
        """The row of any part whose settings differ from these by the changes alone."""
        wanted = replace(row.settings, **changes)
        every = (one for own in self.parts.values() for one in own)
        return next((one for one in every if one.settings == wanted), None)


def way(settings: Settings) -> str:
    """How a model was run, in words: its level, and what compiled it unless that is Inductor.

    Example:
        >>> from tracekit.sweeping.model import Settings
        >>> way(Settings(workload="w", resolution=8, batch_size=1, level="compile", backend="aot_eager"))
        'compile (aot_eager)'
    """
    known = settings.backend in {None, INDUCTOR}
    return settings.level if known else f"{settings.level} ({settings.backend})"


def left_out(workload: str, name: str, *, measured: bool) -> str:
    """Why a suite has no row of a workload run in this way, though it has others of it if `measured`."""
    if not measured:
        return UNMEASURED
    level = name.partition(" ")[0]
    try:
        known = level in registry.load(registry.WORKLOADS, workload).levels
    except TracekitError:  # no longer installed
        return UNMEASURED
    return LEFT_OUT if known else f"no level {level}"


def filled(row: dict[str, Any], columns: Iterable[Column], why: str | Mapping[str, str]) -> dict[str, Any]:
    """A row with a reason for each value that is missing.

    Args:
        row: Values by column.
        columns: Of the table.
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
    """Why a row lacks a value, of the device or at all."""
    if row is None:
        return UNMEASURED
    if row.n and device:
        return row.device_reason or "the run recorded no device"
    return f"{row.outcome}: {row.reason}" if row.reason else "not recorded"


def apart(a: Row, b: Row) -> bool | None:
    """Whether the runs of two rows do not overlap; None of too few, which chance alone sets apart."""
    one, other = a.run_step_ns, b.run_step_ns
    if min(len(one), len(other)) < FEWEST:
        return None
    return max(one) < min(other) or max(other) < min(one)


def geomean(values: Iterable[float | None]) -> float | None:
    """Geometric mean of what is known and above zero; None of nothing.

    Example:
        >>> geomean([1.0, 4.0, None])
        2.0
    """
    known = [value for value in values if value]
    return math.exp(fmean(math.log(value) for value in known)) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what is known; None of nothing."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def ratio(above: float | None, below: float | None) -> float | None:
    """One over the other where both are known."""
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
