"""State of the dashboard: pages, runs, cached results, and the context of a view."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tracekit import analysis, registry
from tracekit.errors import RunNotFoundError, TracekitError

from .answers.pages import of_analysis
from .catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from dash import Dash

    from tracekit.analysis import Analyze, Result
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

    from .page import Page, View


CAPACITY = 64
"""Default number of cached results."""


def _computed(run: Run, name: str) -> Result:
    return analysis.analyze(run, name)


@dataclass
class Results:
    """LRU cache of values computed from runs; concurrent requests for one key share one computation.

    Stored runs never change, so entries never expire.

    Attributes:
        capacity: Maximum number of entries.
        analyze: Function that runs an analysis.
    """

    capacity: int = CAPACITY
    analyze: Analyze = _computed
    _done: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict)
    _locks: dict[Hashable, threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Run, name: str) -> Result:
        """Return the result of one analysis of a run.

        Raises:
            PluginError: The analysis is unknown or failed.
        """
        return self.get((run.path, name), lambda: self.analyze(run, name))

    def between(self, base: Run, head: Run, name: str) -> Result:
        """Return the comparison of two runs by one analysis.

        Raises:
            PluginError: The analysis is unknown or failed.
        """
        return self.get((base.path, head.path, name), lambda: analysis.compare(base, head, name))

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the cached value of a key, or compute it; errors are not cached."""
        with self._guard:
            if key in self._done:
                self._done.move_to_end(key)
                return self._done[key]
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._guard:
                if key in self._done:
                    return self._done[key]
            value = compute()
            with self._guard:
                self._done[key] = value
                self._locks.pop(key, None)
                while len(self._done) > self.capacity:
                    self._done.popitem(last=False)
        return value


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


@dataclass(frozen=True, kw_only=True)
class Site:
    """State shared by all pages.

    Attributes:
        app: The Dash app, whose `server` is the Flask app.
        store: The runs.
        pages: Pages by name, in menu order.
        results: Cache of results.
    """

    app: Dash
    store: Store
    pages: dict[str, Page]
    results: Results = field(default_factory=Results)

    @property
    def covered(self) -> set[str]:
        """Analyses that a page with another name covers."""
        return {name for page in self.pages.values() for name in page.covers if name != page.name}

    @cached_property
    def catalogue(self) -> Catalogue:
        """Cached listing of the store's runs."""
        return Catalogue(self.store)

    def run(self, run_id: str) -> Run | None:
        """Return the run with this full id, or None; the id is never used as a path."""
        return self.catalogue.listing().find(run_id)

    def latest(self) -> Run | None:
        """Return the latest readable run; None in an empty store."""
        return next(reversed(self.catalogue.listing().runs), None)

    def context(self, view: View, *, dark: bool) -> Context:
        """Resolve a view to the context of its blocks; without a run, the latest is used."""
        listing = self.catalogue.listing()
        chosen = listing.find(view.run) if view.run else next(reversed(listing.runs), None)
        filled = replace(view, run=chosen.path.name) if chosen else view
        base = listing.find(view.base) if view.base else None
        return Context(
            view=filled, dark=dark, store=self.store, results=self.results, chosen=chosen, base=base
        )


def registered() -> dict[str, Page]:
    """Return all loadable pages, plus a generated page per remaining analysis, by name in menu order."""
    found: list[Page] = []
    for name in registry.names(registry.PAGES):
        try:
            found.append(registry.load(registry.PAGES, name))
        except TracekitError:
            continue  # reported by `tracekit doctor`
    named = {page.name for page in found}
    found += [of_analysis(one) for one in analysis.available() if one.name not in named]
    return {page.name: page for page in sorted(found, key=lambda page: (page.order, page.name))}
