"""Checks of a run: their result, and the limits of those that judge a share."""

from __future__ import annotations

from dataclasses import dataclass

OK, INFO, WARN, ERROR = "ok", "info", "warn", "error"


@dataclass(frozen=True)
class Check:
    """Result of one check; `detail` names what `share` refers to."""

    check: str
    level: str
    count: int | None = None
    share: float | None = None
    detail: str = ""


LIMITS: dict[str, tuple[float, float | None]] = {
    "device_without_launch": (0.05, None),
    "launched_before_capture": (1.0, None),
    "launch_without_device": (0.01, 0.2),
    "graph_without_device": (0.0, 0.1),
    "launched_past_end": (0.01, None),
    "graph_kernels_missing": (0.1, None),
    "copy_without_device": (1.0, None),
    "device_before_launch": (0.01, None),
    "zero_duration": (0.1, None),
    "kernel_overruns": (0.0, None),
    "empty_steps": (0.0, None),
    "negative_duration": (0.0, None),
    "step_outlives_events": (0.0, None),
    "profiler_intervals": (0.05, 0.5),
    "profiler_overhead": (0.2, 1.0),
}
"""Share above which a check warns, and above which it is an error."""


def check_share(name: str, count: int, total: int, text: str) -> Check:
    """Return a check with a level by a share.

    Args:
        name: The check, one of `LIMITS`.
        count: Number of affected rows.
        total: Number of rows.
        text: What is counted and, after a semicolon, the consequence.

    Example:
        >>> check_share("zero_duration", 3, 10, "device intervals have no duration").level
        'warn'
    """
    plain = text.split(";")[0]  # the consequence applies only to a count above 0
    if not total:
        return Check(name, OK, 0, None, f"0 of 0 {plain}")
    detail = f"{count:,} of {total:,} {text if count else plain}"
    return Check(name, level_of(name, count / total), count, count / total, detail)


def level_of(name: str, share: float) -> str:
    """Level of a share; above 0 it is at least information."""
    warn, error = LIMITS[name]
    if error is not None and share > error:
        return ERROR
    if share > warn:
        return WARN
    return INFO if share > 0 else OK


def limits_of(name: str) -> str:
    """Return the limits of a check, as in `5% / 20%`."""
    warn, error = LIMITS[name]
    return " / ".join(f"{limit:.0%}" if limit else "any" for limit in (warn, error) if limit is not None)
