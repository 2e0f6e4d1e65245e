"""The comparison that the address requests, computed once."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracekit.diff import Options, diff, rollup
from tracekit.diff.comparability import FIELDS
from tracekit.meta import RUN_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.diff import Diff
    from tracekit.run import Run
    from tracekit.store import Store

    from ...context import Context
    from ...view import View

_SHA = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class Comparison:
    """A requested comparison.

    Attributes:
        base: Runs of the base, A.
        head: Runs of the head, B.
        names: References to both sides for a command.
        options: Options of the comparison.
    """

    base: tuple[Run, ...]
    head: tuple[Run, ...]
    names: tuple[str, str]
    options: Options

    @property
    def without_analyses(self) -> Comparison:
        """The same without the analyses, which take most of the time."""
        return replace(self, options=replace(self.options, explain=False))

    @property
    def by_op(self) -> Comparison:
        """The same grouped by op; analyses and the wall ledger do not depend on the grouping."""
        return replace(self, options=replace(self.options, by="op"))


def requested(context: Context) -> Comparison | None:
    """Return the requested comparison; None without two different runs."""
    base, head = context.base, context.run
    if base is None or base.path == head.path:
        return None
    options = Options(by=lines(context.view), varying=varying(context.view))
    if context.view.options.get("repeats") == "all":
        a, b = repeats(context.store, base), repeats(context.store, head)
        if base not in b[1]:
            return Comparison(a[1], b[1], (a[0], b[0]), options)
    return Comparison((base,), (head,), (base.path.name, head.path.name), options)


def varying(view: View) -> tuple[str, ...]:
    """Return the fields whose differences the address ignores.

    Example:
        >>> from tracekit.dashboards.view import View
        >>> varying(View(options={"varying": "gpu,bogus,torch"}))
        ('gpu', 'torch')
    """
    names = view.options.get("varying", "").split(",")
    return tuple(name for name in dict.fromkeys(names) if name in FIELDS)


def lines(view: View) -> str:
    """Return the grouping of the causes."""
    by = view.options.get("by", "op")
    return by if by in rollup.VIEWS else "op"


def repeats(store: Store, run: Run) -> tuple[str, tuple[Run, ...]]:
    """Return a reference to a run and its repeats, and the runs; the run's id if it has no repeats.

    Only shell-safe references are used, since users copy the commands.
    """
    label, git = run.meta.label, run.meta.git
    stored = store.readable()
    if label and RUN_ID.fullmatch(label):
        found = _same_fingerprint([one for one in stored if one.meta.label == label])
        if len(found) > 1 and run in found:
            return label, found
    if git and _SHA.fullmatch(git.sha):
        found = _same_fingerprint([one for one in stored if one.meta.git and one.meta.git.sha == git.sha])
        if len(found) > 1 and run in found:
            return f"git:{git.sha[:12]}", found
    return run.path.name, (run,)


def _same_fingerprint(runs: list[Run]) -> tuple[Run, ...]:
    """Return runs with the newest run's fingerprint, like `tracekit diff` with a label or commit."""
    return tuple(run for run in runs if run.meta.fingerprint == runs[-1].meta.fingerprint)


@dataclass
class Stages:
    """Progress of running comparisons."""

    _running: dict[object, tuple[float, str]] = field(default_factory=dict)
    _ended: set[object] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def run(self, key: object, work: Callable[[Callable[[str], None]], Diff]) -> Diff:
        """Compute and record progress."""
        began = time.monotonic()

        def report(stage: str) -> None:
            with self._guard:
                self._running[key] = (began, stage)

        report("reading")
        try:
            return work(report)
        finally:
            with self._guard:
                self._running.pop(key, None)
                self._ended.add(key)

    def ended(self, key: object) -> bool:
        """Return whether a computation has ended, successfully or not."""
        with self._guard:
            return key in self._ended

    def of(self, *keys: object) -> str:
        """Describe the progress of the first running key; empty if none is running."""
        with self._guard:
            found = [self._running[key] for key in keys if key in self._running]
        return f"Comparing: {found[0][1]}, {time.monotonic() - found[0][0]:.0f} s" if found else ""


STAGES = Stages()


def compared(context: Context, one: Comparison) -> Diff:
    """Return the comparison, computed at most once."""

    def work(report: Callable[[str], None]) -> Diff:
        return diff(one.base, one.head, references=one.names, options=one.options, progress=report)

    found: Diff = context.results.get(("diff", one), lambda: STAGES.run(one, work))
    return found


def with_analyses(context: Context, one: Comparison) -> Diff:
    """Return the comparison with analyses; computed after the quick one, so that they do not compete."""
    compared(context, one.without_analyses)
    return compared(context, one.by_op)
