"""How many runs, which metrics, and what counts as a change."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.errors import UnusableInputError
from tracekit.stats.comparison import THRESHOLD
from tracekit.stats.sequential import Look, plan


@dataclass(frozen=True, kw_only=True)
class Design:
    """The design of a comparison, decided before anything is measured.

    Attributes:
        k: Runs per side at the first look.
        max_k: Runs per side at the last one; each look doubles the runs.
        threshold: Relative change from which it is a regression.
        metrics: What is judged; empty for all that the program has by default.
        warmup: Runs per side before the others, which do not count.
    """

    k: int = 5
    max_k: int = 20
    threshold: float = THRESHOLD
    metrics: tuple[str, ...] = ()
    warmup: int = 1

    @property
    def looks(self) -> tuple[Look, ...]:
        """When to look, and the level of each look.

        Raises:
            UnusableInputError: There are too few runs, or fewer at the end than at the start.

        Example:
            >>> [look.k for look in Design().looks], [look.k for look in Design(k=6, max_k=6).looks]
            ([5, 10, 20], [6])
        """
        if not 2 <= self.k <= self.max_k:
            raise UnusableInputError(
                f"-k {self.k} with --max-k {self.max_k} is no plan",
                hint="use -k 2 or more, and no more than --max-k",
            )
        schedule = [self.k]
        while 2 * schedule[-1] <= self.max_k:
            schedule.append(2 * schedule[-1])
        return plan([*schedule, self.max_k] if schedule[-1] < self.max_k else schedule)
