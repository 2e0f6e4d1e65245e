"""Time or cycles: what a comparison is worth when the clocks of the two sides differ.

A device that ran its base at another clock than its head makes every kernel slower without any change of
code, and hides a change of code as easily. When the clocks differ by more than the tolerance, the verdict
must hold in cycles as well as in time.
"""

from __future__ import annotations

from dataclasses import replace

from tracekit.stats.comparison import Comparison, Verdict

TOLERANCE = 0.02


def cycles(time_ns: float, clock_mhz: float) -> float:
    """Clock cycles in a time.

    Example:
        >>> cycles(1_000_000, 1_980)
        1980000.0
    """
    return time_ns * clock_mhz / 1000


def differ(clock_a: float, clock_b: float, *, tolerance: float = TOLERANCE) -> bool:
    """Whether two clocks are too far apart to compare times alone.

    Example:
        >>> differ(1_980, 1_950), differ(1_980, 1_900)
        (False, True)
    """
    return max(clock_a, clock_b) / min(clock_a, clock_b) - 1 > tolerance


def reconcile(
    time: Comparison,
    in_cycles: Comparison | None,
    clock_a: float,
    clock_b: float,
    *,
    tolerance: float = TOLERANCE,
) -> Comparison:
    """The verdict in time, unless the clocks differ and cycles say otherwise.

    Args:
        time: The comparison in time.
        in_cycles: The same runs compared in cycles; None where a run has no clock.
        clock_a: Mean SM clock of the base's runs, MHz.
        clock_b: The same of the head's.
        tolerance: Relative difference of clocks that is none.

    Returns:
        `time`, with "cannot tell" where the clocks differ and the verdicts do not agree.
    """
    if time.verdict is Verdict.NONE or not differ(clock_a, clock_b, tolerance=tolerance):
        return time
    clocks = f"SM clock {clock_a:.0f} MHz against {clock_b:.0f} MHz"
    if in_cycles is None:
        reason = f"{clocks}, and without cycles their part in it is unknown"
    elif in_cycles.verdict is time.verdict:
        return replace(time, reason=f"{time.reason}; so it is in cycles ({clocks})")
    else:
        reason = f"{clocks}: {time.verdict} in time, but {in_cycles.verdict} in cycles"
    return replace(time, verdict=Verdict.CANNOT_TELL, reason=reason)
