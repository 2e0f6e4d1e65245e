"""Advice on what to record, from the result of the analysis `capture`."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analysis import Result

NAME = "capture"
TITLE = "What to record to answer more"


@dataclass(frozen=True)
class Missing:
    """What was not recorded, what it would answer, and the setting that records it."""

    missing: str
    answers: str
    setting: str

    @property
    def text(self) -> str:
        """All of it in one line of prose, with code in backticks."""
        return f"{self.missing}: {self.answers} → {self.setting}"


@dataclass(frozen=True)
class Capture:
    """What a run lacks, most needed first, and the lines that record it in a framework."""

    framework: str
    missing: tuple[Missing, ...]
    lines: tuple[str, ...]


def of_result(result: Result) -> Capture | None:
    """Return what a run lacks by the result of `capture`; None if nothing."""
    missing, lines = result.tables.get("missing"), result.tables.get("lines")
    if missing is None or lines is None:
        return None
    rows = zip(*(missing[name].astype(str) for name in ("missing", "answers", "setting")), strict=True)
    return Capture(
        str(lines["framework"].iloc[0]),
        tuple(Missing(*row) for row in rows),
        tuple(lines["line"].astype(str)),
    )
