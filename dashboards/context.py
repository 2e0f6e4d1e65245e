"""Input of a block: the view, its runs, and analysis results."""

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
    """The current view with everything needed to compute it.

    Attributes:
        view: Parsed address, with the id of the latest run filled in if it names none.
        dark: Whether the dark theme is on.
        store: The runs.
        results: Cache of results.
        chosen: The selected run; None if the store has none.
        base: The baseline run; None without one.
    """

    view: View
    dark: bool
    store: Store
    results: Results
    chosen: Run | None = None
    base: Run | None = None

    @property
    def run(self) -> Run:
        """The selected run.

        Raises:
            RunNotFoundError: There is none.
        """
        if self.chosen is None and self.view.run:
            raise RunNotFoundError(
                f"the store has no readable run {self.view.run[:80]}",
                hint="choose another one at the top of the page",
            )
        if self.chosen is None:
            raise RunNotFoundError("no run selected", hint="choose one at the top of the page")
        return self.chosen

    def result(self, name: str) -> Result:
        """Return the result of one analysis of the run.

        Raises:
            RunNotFoundError: There is no run.
            PluginError: The analysis is unknown or failed.
        """
        return self.results.of(self.run, name)
