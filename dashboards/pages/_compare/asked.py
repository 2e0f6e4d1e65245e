"""What is compared with what, as the address says it, and the comparison itself, computed once."""

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
class Asked:
    """A comparison as it is asked for.

    Attributes:
        base: Runs of the base, A.
        head: Runs of the head, B.
        names: How a command names the two sides.
        options: How to compare.
    """

    base: tuple[Run, ...]
    head: tuple[Run, ...]
    names: tuple[str, str]
    options: Options

    @property
    def quickly(self) -> Asked:
        """The same without asking the analyses, which takes most of the time."""
        return replace(self, options=replace(self.options, explain=False))

    @property
    def wholly(self) -> Asked:
        """The same by op: what the analyses and the wall ledger say does not depend on the lines."""
        return replace(self, options=replace(self.options, by="op"))


def asked(context: Context) -> Asked | None:
    """What the address asks for; None without two runs that differ."""
    base, head = context.base, context.run
    if base is None or base.path == head.path:
        return None
    options = Options(by=lines(context.view), varying=varying(context.view))
    if context.view.options.get("repeats") == "all":
        a, b = repeats(context.store, base), repeats(context.store, head)
        if base not in b[1]:
            return Asked(a[1], b[1], (a[0], b[0]), options)
    return Asked((base,), (head,), (base.path.name, head.path.name), options)


def varying(view: View) -> tuple[str, ...]:
    """Fields that the address declares to vary.

    Example:
        >>> from tracekit.dashboards.view import View
        >>> varying(View(options={"varying": "gpu,bogus,torch"}))
        ('gpu', 'torch')
    """
    names = view.options.get("varying", "").split(",")
    return tuple(name for name in dict.fromkeys(names) if name in FIELDS)


def lines(view: View) -> str:
    """What the lines of causes sum."""
    by = view.options.get("by", "op")
    return by if by in rollup.VIEWS else "op"


def repeats(store: Store, run: Run) -> tuple[str, tuple[Run, ...]]:
    """A reference that means a run and all its repeats, as commands take it; its own id without any.

    Only what is safe in a shell becomes a reference, since commands are there to be copied.
    """
    label, git = run.meta.label, run.meta.git
    stored = store.readable()
    if label and RUN_ID.fullmatch(label):
        found = _alike([one for one in stored if one.meta.label == label])
        if len(found) > 1 and run in found:
            return label, found
    if git and _SHA.fullmatch(git.sha):
        found = _alike([one for one in stored if one.meta.git and one.meta.git.sha == git.sha])
        if len(found) > 1 and run in found:
            return f"git:{git.sha[:12]}", found
    return run.path.name, (run,)


def _alike(runs: list[Run]) -> tuple[Run, ...]:
    """Those with the fingerprint of the newest, as `tracekit diff` takes a label or a commit."""
    return tuple(run for run in runs if run.meta.fingerprint == runs[-1].meta.fingerprint)


@dataclass
class Stages:
    """Which comparisons run, since when, and what they do now; and which have ended."""

    _running: dict[object, tuple[float, str]] = field(default_factory=dict)
    _ended: set[object] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def run(self, key: object, work: Callable[[Callable[[str], None]], Diff]) -> Diff:
        """Compute, and tell what is done meanwhile."""
        began = time.monotonic()

        def tell(stage: str) -> None:
            with self._guard:
                self._running[key] = (began, stage)

        tell("reading")
        try:
            return work(tell)
        finally:
            with self._guard:
                self._running.pop(key, None)
                self._ended.add(key)

    def ended(self, key: object) -> bool:
        """Whether a computation under this key has ended, well or not."""
        with self._guard:
            return key in self._ended

    def of(self, *keys: object) -> str:
        """What is done under any of the keys; empty when nothing is."""
        with self._guard:
            found = [self._running[key] for key in keys if key in self._running]
        return f"Comparing: {found[0][1]}, {time.monotonic() - found[0][0]:.0f} s" if found else ""


STAGES = Stages()


def compared(context: Context, one: Asked) -> Diff:
    """The comparison that was asked for, computed at most once."""

    def work(tell: Callable[[str], None]) -> Diff:
        return diff(one.base, one.head, references=one.names, options=one.options, progress=tell)

    found: Diff = context.results.get(("diff", one), lambda: STAGES.run(one, work))
    return found


def explained(context: Context, one: Asked) -> Diff:
    """The comparison with what the analyses say, after the quick one: that must not share the processor."""
    compared(context, one.quickly)
    return compared(context, one.wholly)
