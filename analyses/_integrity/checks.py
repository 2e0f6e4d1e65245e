"""Result of one integrity check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OK, INFO, WARN, ERROR = "ok", "info", "warn", "error"


@dataclass(frozen=True)
class Check:
    """Result of one check; `detail` names what `share` refers to."""

    check: str
    level: str
    count: int | None = None
    share: float | None = None
    detail: str = ""

    def row(self) -> dict[str, Any]:
        """The check as a row of the table."""
        share = float("nan") if self.share is None else self.share
        return {
            "check": self.check,
            "level": self.level,
            "count": self.count,
            "share": share,
            "detail": self.detail,
        }


def counted(name: str, count: int, of: int, what: str, *, warn: float, error: float | None = None) -> Check:
    """Check with a level derived from a share.

    Args:
        name: The check.
        count: Number of affected rows.
        of: Number of rows.
        what: What is counted and, after a semicolon, the consequence.
        warn: Above this share it is a warning.
        error: Above this share it is an error.

    Example:
        >>> counted("unlinked", 3, 10, "device intervals have no launch", warn=0.05).level
        'warn'
    """
    plain = what.split(";")[0]  # the consequence applies only to a count above 0
    if not of:
        return Check(name, OK, 0, None, f"0 of 0 {plain}")
    share = count / of
    text = what if count else plain
    return Check(name, level(share, warn=warn, error=error), count, share, f"{count:,} of {of:,} {text}")


def level(share: float, *, warn: float, error: float | None = None) -> str:
    """Level of a share; above 0 it is at least information."""
    if error is not None and share > error:
        return ERROR
    if share > warn:
        return WARN
    return INFO if share > 0 else OK
