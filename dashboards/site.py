"""The site: the app, its store and its pages; resolves views to runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tracekit import analysis, registry
from tracekit.errors import TracekitError

from .answers.analysis_page import of_analysis
from .catalogue import Catalogue
from .context import Context
from .results import Results

if TYPE_CHECKING:
    from dash import Dash

    from tracekit.run import Run
    from tracekit.store import Store

    from .page import Page
    from .view import View


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
