"""Compute the findings of a run in the background."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit import analysis
from tracekit.analysis import Result
from tracekit.errors import PluginError
from tracekit.findings import gather

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.analysis import Analysis, Finding
    from tracekit.findings import Advice
    from tracekit.run import Run

    from ...context import Context
    from ...results import Results

FIRST = ("steps", "gpu_breakdown", "integrity", "overlap", "memory")
"""Fast analyses to run first, fastest first; the page shows their numbers early."""
_SERIAL = threading.Lock()
"""Run one analysis at a time; concurrent ones would slow each other down."""


@dataclass
class Advising:
    """Progress and result of the findings of a run.

    Attributes:
        run: The run.
        results: Cache that receives each analysis' result.
        title: Title of the running analysis; empty before the first.
        done: Number of finished analyses.
        total: Number of analyses.
        found: Findings so far, in order of the analyses.
        advice: The result; None until finished or if it failed.
        error: Error message.
        finished: Set when finished.
    """

    run: Run
    results: Results
    title: str = ""
    done: int = 0
    total: int = 1
    found: tuple[Finding, ...] = ()
    advice: Advice | None = None
    error: str = ""
    finished: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        """Run every analysis and rank the findings."""
        try:
            self.advice = gather(self.run, self._each())
        except Exception as error:  # shown on the page
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.finished.set()

    def _each(self) -> Iterator[tuple[Analysis, Result]]:
        chosen = analysis.available()
        self.total = len(chosen)
        run_fast_analyses(self.results, self.run)
        for self.done, one in enumerate(chosen):
            self.title = one.title
            with _SERIAL:
                found = self._result(one)
            self.found += found.findings
            yield one, found

    def _result(self, one: Analysis) -> Result:
        try:
            return self.results.of(self.run, one.name)
        except PluginError as error:
            return Result(notes=(f"failed: {error.message}",))


def run_fast_analyses(results: Results, run: Run, before: str = "") -> None:
    """Run the fast analyses first, so that slow ones do not delay them.

    Args:
        results: Cache that receives the results.
        run: The run.
        before: Run only those before this one; default: all.
    """
    until = FIRST.index(before) if before else len(FIRST)
    for name in FIRST[:until]:
        with suppress(PluginError):  # the page shows the error
            results.of(run, name)


def advising(context: Context) -> Advising:
    """Return the findings of the selected run; start computing them if necessary.

    Raises:
        RunNotFoundError: There is no run.
    """
    run = context.run
    found: Advising = context.results.get((run.path, Advising), lambda: _start(run, context.results))
    return found


def _start(run: Run, results: Results) -> Advising:
    one = Advising(run, results)
    threading.Thread(target=one.work, name="tracekit-advice", daemon=True).start()
    return one
