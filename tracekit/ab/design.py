"""Design of a comparison: number of runs, metrics, threshold."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.errors import UnusableInputError
from tracekit.stats.comparison import THRESHOLD
from tracekit.stats.sequential import Look, plan


@dataclass(frozen=True, kw_only=True)
class Design:
    """The design of a comparison, fixed before the first measurement.

    Attributes:
        k: Runs per side before the first test.
        max_k: Maximum runs per side; the number doubles between tests.
        threshold: Relative change from which it is a regression.
        metrics: Metrics to compare; empty for the program's defaults.
        warmup: Warm-up runs per side, not counted.
    """

    k: int = 5
    max_k: int = 20
    threshold: float = THRESHOLD
    metrics: tuple[str, ...] = ()
    warmup: int = 1

    @property
    def looks(self) -> tuple[Look, ...]:
        """Interim tests, with the significance level of each.

        Raises:
            UnusableInputError: `k` is below 2 or above `max_k`.

        Example:
            >>> [look.k for look in Design().looks], [look.k for look in Design(k=6, max_k=6).looks]
            ([5, 10, 20], [6])
        """
        if not 2 <= self.k <= self.max_k:
            raise UnusableInputError(
                f"-k {self.k} and --max-k {self.max_k} do not fit",
                hint="use a -k of at least 2 and at most --max-k",
            )
        schedule = [self.k]
        while 2 * schedule[-1] <= self.max_k:
            schedule.append(2 * schedule[-1])
        return plan([*schedule, self.max_k] if schedule[-1] < self.max_k else schedule)
