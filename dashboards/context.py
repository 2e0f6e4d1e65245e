"""What a block is given: the view, the runs it names, and results of analyses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.errors import RunNotFoundError

if TYPE_CHECKING:
    from tracekit.analysis import Result
    from tracekit.run import Run
    from tracekit.store import Store

    from .results import Results
    from .view import View


@dataclass(frozen=True, kw_only=True)
class Context:
    """What is looked at, and what it takes to compute it.

    Attributes:
        view: What the address says, with the id of the run filled in where it said the latest.
        dark: Whether the dark theme is on.
        store: The runs.
        results: Results that were computed already.
        chosen: The run the view names; None where the store has none.
        base: The run it is compared with; None without one.
    """

    view: View
    dark: bool
    store: Store
    results: Results
    chosen: Run | None = None
    base: Run | None = None

    @property
    def run(self) -> Run:
        """The run looked at.

        Raises:
            RunNotFoundError: There is none.
        """
        if self.chosen is None and self.view.run:
            raise RunNotFoundError(
                f"the store no longer holds a readable run {self.view.run[:80]}",
                hint="choose another at the top",
            )
        if self.chosen is None:
            raise RunNotFoundError("no run is chosen", hint="choose one at the top of the page")
        return self.chosen

    def result(self, name: str) -> Result:
        """The result of one analysis of the run.

        Raises:
            RunNotFoundError: There is no run.
            PluginError: The analysis is unknown or failed.
        """
        return self.results.of(self.run, name)
