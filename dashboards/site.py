"""The site: the app, the store behind it, and its pages; what a view means is found out here."""

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
    """The parts that pages share.

    Attributes:
        app: The Dash app, whose `server` is the Flask app.
        store: The runs.
        pages: By name, in the order of the menu.
        results: Results that were computed already.
    """

    app: Dash
    store: Store
    pages: dict[str, Page]
    results: Results = field(default_factory=Results)

    @property
    def covered(self) -> set[str]:
        """Analyses that a page shows whole, under another name."""
        return {name for page in self.pages.values() for name in page.covers if name != page.name}

    @cached_property
    def catalogue(self) -> Catalogue:
        """The store's runs, each read once."""
        return Catalogue(self.store)

    def run(self, run_id: str) -> Run | None:
        """A run of the store by its whole id; None when there is none. Looked up, never a path."""
        return self.catalogue.listing().find(run_id)

    def latest(self) -> Run | None:
        """The latest run that can be read; None in an empty store."""
        return next(reversed(self.catalogue.listing().runs), None)

    def context(self, view: View, *, dark: bool) -> Context:
        """What blocks are given for a view; without a run in it, the latest is meant."""
        listing = self.catalogue.listing()
        chosen = listing.find(view.run) if view.run else next(reversed(listing.runs), None)
        filled = replace(view, run=chosen.path.name) if chosen else view
        base = listing.find(view.base) if view.base else None
        return Context(
            view=filled, dark=dark, store=self.store, results=self.results, chosen=chosen, base=base
        )


def registered() -> dict[str, Page]:
    """Every page that can be loaded, and one for each other analysis, by name, in the order of the menu."""
    found: list[Page] = []
    for name in registry.names(registry.PAGES):
        try:
            found.append(registry.load(registry.PAGES, name))
        except TracekitError:
            continue  # `tracekit doctor` names it; it must not break the others
    named = {page.name for page in found}
    found += [of_analysis(one) for one in analysis.available() if one.name not in named]
    return {page.name: page for page in sorted(found, key=lambda page: (page.order, page.name))}
