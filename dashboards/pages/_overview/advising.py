"""Advice on a run, worked out in the background: it takes every analysis, and no page waits for that."""

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
"""What is asked for first, the quickest first: a page shows numbers of these while the others go on."""
_ONE = threading.Lock()
"""One analysis at a time: runs take turns, as two at once would only slow each other down."""


@dataclass
class Advising:
    """How far the advice on a run has come.

    Attributes:
        run: The run.
        results: Where each analysis leaves its result, for the pages that show it.
        title: The analysis under way; empty before the first.
        done: Analyses that are done.
        total: Analyses there are.
        found: What they found so far, in the order of the analyses.
        advice: What came of it; None until then.
        trouble: Why nothing came of it.
        finished: Set once it is over.
    """

    run: Run
    results: Results
    title: str = ""
    done: int = 0
    total: int = 1
    found: tuple[Finding, ...] = ()
    advice: Advice | None = None
    trouble: str = ""
    finished: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        """Run every analysis and rank what they found."""
        try:
            self.advice = gather(self.run, self._each())
        except Exception as error:  # whoever looks at it is told; a thread has no one else to tell
            self.trouble = f"{type(error).__name__}: {error}"
        finally:
            self.finished.set()

    def _each(self) -> Iterator[tuple[Analysis, Result]]:
        chosen = analysis.available()
        self.total = len(chosen)
        settle(self.results, self.run)
        for self.done, one in enumerate(chosen):
            self.title = one.title
            with _ONE:
                found = self._result(one)
            self.found += found.findings
            yield one, found

    def _result(self, one: Analysis) -> Result:
        try:
            return self.results.of(self.run, one.name)
        except PluginError as error:
            return Result(notes=(f"failed: {error.message}",))


def settle(results: Results, run: Run, before: str = "") -> None:
    """Have the quick analyses done, so that what takes longer does not slow them down.

    Args:
        results: Where they leave their results.
        run: The run.
        before: Only those that come before this one; all by default.
    """
    until = FIRST.index(before) if before else len(FIRST)
    for name in FIRST[:until]:
        with suppress(PluginError):  # who shows it says why
            results.of(run, name)


def advising(context: Context) -> Advising:
    """The advice on the run looked at, begun if it was not yet.

    Raises:
        RunNotFoundError: There is no run.
    """
    run = context.run
    found: Advising = context.results.get((run.path, Advising), lambda: _begun(run, context.results))
    return found


def _begun(run: Run, results: Results) -> Advising:
    one = Advising(run, results)
    threading.Thread(target=one.work, name="tracekit-advice", daemon=True).start()
    return one
