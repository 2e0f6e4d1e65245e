"""Model of the dashboard: pages, addresses, runs, cached results, and the context of a view.

A page is menu metadata, a cheap layout, and blocks that are computed on demand. Built-in and external pages
are registered under the entry point group `tracekit.pages`. An address is the page's name and a query, as in
`/timeline?run=ID&rank=0&from=100&to=900`. Query parameters that are not a field of `View` are options of the
page.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode

from dash import Dash
from dash.development.base_component import Component
from flask import request

from tracekit import analysis
from tracekit.analysis import Analyze, Result
from tracekit.analysis.findings import Advice
from tracekit.analysis.savings import Budget, Ranked, budget
from tracekit.errors import RunNotFoundError, TracekitError
from tracekit.runs.devices import find_named
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.schema import TABLES, C

from .catalog import Catalog

Block: TypeAlias = "Callable[[Context], Component | list[Component]]"
T = TypeVar("T")


class Section(StrEnum):
    """Menu headings, in order."""

    START = "Start"
    TIME = "Where time goes"
    DEVICE = "Device work"
    HOST = "Host and memory"
    MORE = "More analyses"
    COMPARE = "Compare"
    HELP = "Help"


class Needs(StrEnum):
    """Selection that a page requires."""

    NOTHING = "nothing"
    RUN = "a run"


@dataclass(frozen=True, kw_only=True)
class Page:
    """A dashboard page.

    Attributes:
        name: Registered name, also its path.
        title: Heading and menu entry.
        question: The question it answers, in one sentence.
        section: Menu heading.
        order: Sort key in the menu.
        layout: Returns controls and `block(...)` placeholders, without computing anything.
        blocks: Functions that compute the blocks, by name.
        needs: What must be selected first.
        covers: Analyses that it shows completely; they get no separate menu entry.
        exports: Further analyses to include in its exported files.
        advice: Findings at the top of its report; they replace those of the single analyses.
        prefetch: Analyses to start when the address is requested, fastest first; default: `covers`.
        find_lack: Returns what to record if a store, with its readable runs, has nothing to show; empty if it
            has. A run that lacks what the analyses read is known from them.
        connect: Registers further callbacks and routes, once per app.
    """

    name: str
    title: str
    question: str
    section: Section
    order: int
    layout: Callable[[Context], Component | list[Component]]
    blocks: Mapping[str, Block] = field(default_factory=dict)
    needs: Needs = Needs.RUN
    covers: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    advice: Callable[[Context], Sequence[Ranked]] | None = None
    prefetch: tuple[str, ...] = ()
    find_lack: Callable[[Store, Sequence[Run]], str] | None = None
    connect: Callable[[Site], None] | None = None


HOME = "runs"
PLAIN = "plain"
"""Option of the address of a page for browsers without scripts: its first response has all of its blocks."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ROW = re.compile(r"([a-z_]{1,40}):(\d{1,12})")
MAX_PARAMETER_CHARS = 200
MAX_SQL_CHARS = 4_000
"""Maximum characters of a parameter, and of the query of the SQL page."""
MAX_LANES_CHARS = 12_000
"""Maximum characters of the parameter with the queries of the timeline."""
_MAX_CHARS = {
    "sql": MAX_SQL_CHARS + 1,
    "queries": MAX_LANES_CHARS,
    "filter": 2_000,
    "varying": 2_000,
    "runs": 2_000,
}
"""Where not `MAX_PARAMETER_CHARS`; longer queries keep one more, to be refused and not cut."""
_NUMBER = re.compile(r"-?\d{1,18}")


WORDS = {
    "run": "run",
    "base": "base",
    "rank": "rank",
    "device": "device",
    "from": C.START_NS,
    "to": "end_ns",
    "row": "row",
    "peaks": "peaks",
}
"""Fields of a view by their parameter; all other parameters are options."""
_INTEGERS = ("rank", "device", C.START_NS, "end_ns")


@dataclass(frozen=True, kw_only=True)
class View:
    """The state in an address.

    Attributes:
        page: Name of the page.
        run: Id of the run; empty for the latest.
        base: Id of the baseline run; empty for none.
        rank: Only this rank; None for all.
        device: Only this device; None for all.
        start_ns: Start of the visible range, relative to the run's t0; None for the start of the capture.
        end_ns: End of the visible range; None for the end of the capture.
        row: The selected row, such as `device_intervals:7`; empty for none.
        peaks: Listed device whose peaks are used instead of those of the recorded devices; empty for the
            latter.
        options: Page-specific parameters, by name.

    Example:
        >>> view = View.parse("/timeline", "?run=r1&from=100&to=900&lanes=gpu")
        >>> view.page, view.run, view.start_ns, view.options
        ('timeline', 'r1', 100, {'lanes': 'gpu'})
        >>> view.href(page="overview", start_ns=None, end_ns=None, options={})
        '/overview?run=r1'
    """

    page: str = HOME
    run: str = ""
    base: str = ""
    rank: int | None = None
    device: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    row: str = ""
    peaks: str = ""
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, path: str | None, search: str | None) -> View:
        """Parse an address; malformed parameters are ignored."""
        page = (path or "").strip("/") or HOME
        words = {
            name: value[: _MAX_CHARS.get(name, MAX_PARAMETER_CHARS)]
            for name, value in parse_qsl((search or "").lstrip("?"))
        }
        fields: dict[str, Any] = {name: words.pop(word, "") for word, name in WORDS.items()}
        for name in _INTEGERS:
            fields[name] = int(fields[name]) if _NUMBER.fullmatch(fields[name]) else None
        fields["row"] = fields["row"] if parse_row(fields["row"]) else ""
        options = {name: value for name, value in words.items() if _NAME.fullmatch(name)}
        return cls(page=page if _NAME.fullmatch(page) else "", options=options, **fields)

    def search(self) -> str:
        """Return the query string with the question mark; empty if all fields have defaults."""
        words = {word: getattr(self, name) for word, name in WORDS.items()} | self.options
        query = urlencode({name: value for name, value in words.items() if value not in {None, ""}}, safe=":")
        return f"?{query}" if query else ""

    def href(self, **changes: Any) -> str:
        """Return the address of this view with some fields changed, as `dataclasses.replace` takes them."""
        changed = replace(self, **changes)
        return f"/{changed.page}{changed.search()}"

    def elsewhere(self, page: str, **changes: Any) -> str:
        """Return the address of another page with the same runs, rank, device and peaks."""
        other = replace(self, page=page, start_ns=None, end_ns=None, row="", options={})
        return other.href(**changes)


def parse_row(row: str) -> tuple[str, int] | None:
    """Parse a selected row into table and row id; None if it is invalid.

    Example:
        >>> parse_row("device_intervals:7"), parse_row("passwd:1")
        (('device_intervals', 7), None)
    """
    match = _ROW.fullmatch(row)
    return (match[1], int(match[2])) if match and match[1] in TABLES else None


MAX_RESULTS = 64
"""Default number of cached results."""
MAX_BLOCKS = 32
"""Number of cached blocks, those of some pages; the largest tables take 10 MB."""
MAX_NOTES = 2_048
"""Number of results of which it is known whether they are empty: those of some 60 runs."""


@dataclass
class Recent:
    """LRU cache of values computed from runs; concurrent requests for one key share one computation.

    Stored runs never change, so entries never expire.
    """

    capacity: int = MAX_RESULTS  # maximum number of entries
    _values: OrderedDict[Hashable, Future[Any]] = field(default_factory=OrderedDict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached value of a key, or compute it; errors are not cached."""
        with self._guard:
            is_new = key not in self._values
            future = self._values.setdefault(key, Future())
            self._values.move_to_end(key)
            while len(self._values) > self.capacity:
                self._values.popitem(last=False)
        if is_new:
            try:
                future.set_result(compute())
            except BaseException as error:
                with self._guard:
                    self._values.pop(key, None)
                future.set_exception(error)  # for those who wait, too
        value: T = future.result()
        return value


@dataclass
class Results(Recent):
    """Cache of results of analyses, and of what follows from them.

    Attributes:
        analyze: Function that runs an analysis.
        advise: Function that returns all advice on a run, which it may have from before, or computes it.
        blocks: Blocks that follow from results alone, by what they are of.
        read_notes: Returns whether a result of before has tables, and its notes; None without one.
        notes: What that returned.
    """

    analyze: Analyze = lambda run, name: analysis.analyze(run, name)
    advise: Callable[[Run, Callable[[], Advice]], Advice] = lambda _, compute: compute()
    blocks: Recent = field(default_factory=lambda: Recent(MAX_BLOCKS))
    read_notes: Callable[[Run, str], tuple[bool, tuple[str, ...]] | None] = lambda run, name: None
    notes: Recent = field(default_factory=lambda: Recent(MAX_NOTES))

    def find_lack(self, run: Run, name: str) -> str:
        """Return why an analysis has nothing on a run, as far as is known without it; empty if it has.

        Raises:
            TracekitError: A table of the run cannot be read.
        """

        def read() -> tuple[bool, tuple[str, ...]]:
            if known := self.read_notes(run, name):
                return known
            raise LookupError  # it may become known

        loaded = analysis.get(name)
        has_input, known = loaded.finds_input(run), None
        with suppress(LookupError):
            known = self.notes.get((run.path, name), read)
        if has_input and (known is None or known[0]):
            return ""
        return next(filter(None, known[1] if known else ()), loaded.question)

    def of(self, run: Run, name: str) -> Result:
        """Return the result of one analysis of a run.

        Raises:
            PluginError: The analysis is unknown or failed.
        """
        key = (run.path, name, analysis.peaks_of(run, name))
        return self.get(key, lambda: self.analyze(run, name))

    def budget(self, run: Run) -> Budget:
        """Return what savings of a run are measured against, from its advice if that is known."""

        def refuse() -> Advice:
            raise LookupError

        def find() -> Budget:
            with suppress(LookupError):
                return self.advise(run, refuse).budget
            return budget(run)

        return self.get((run.path, Budget), find)

    def between(self, base: Run, head: Run, name: str) -> Result:
        """Return the comparison of two runs by one analysis.

        Args:
            base: The baseline.
            head: The run compared with it.
            name: Name of the analysis.

        Raises:
            PluginError: The analysis is unknown or failed.
        """
        key = (base.path, head.path, name, analysis.peaks_of(head, name))
        return self.get(key, lambda: analysis.compare(base, head, name))


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
        """The selected run, with the peaks in the address.

        Raises:
            RunNotFoundError: There is none.
            UnusableInputError: The device of the peaks is not listed.
        """
        if self.chosen is None and self.view.run:
            raise RunNotFoundError(
                f"the store has no readable run {self.view.run[:80]}",
                hint="choose another one at the top of the page",
            )
        if self.chosen is None:
            raise RunNotFoundError("no run selected", hint="choose one at the top of the page")
        return with_peaks(self.chosen, self.view.peaks)

    def result(self, name: str) -> Result:
        """Return the result of one analysis of the run.

        Raises:
            RunNotFoundError: There is no run.
            UnusableInputError: The device of the peaks is not listed.
            PluginError: The analysis is unknown or failed.
        """
        return self.results.of(self.run, name)

    def keep(self, of: Hashable, compute: Callable[[], T]) -> T:
        """Return what follows from results and the view alone, computed or from before; never change it.

        Args:
            of: What tells it from others of the view.
            compute: Computes it.
        """
        base = self.base.path if self.base else None
        return self.results.blocks.get((of, self.run.path, base, self.view.href(), self.dark), compute)


def with_peaks(run: Run, device: str) -> Run:
    """Return a run with the peaks of a listed device; with those of the recorded ones if the name is empty.

    Files are not read: an address must not name files of the server.

    Raises:
        UnusableInputError: The device is not listed.
    """
    return run.with_peaks(find_named(device)) if device else run


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
    def catalog(self) -> Catalog:
        """Cached listing of the store's runs."""
        return Catalog(self.store)

    def find_lack(self, page: Page, run: Run) -> str:
        """Return what a run or the store lacks for a page, with what to record; empty if it has data.

        That a run cannot be read, its page says.
        """
        if find := page.find_lack:
            listing = self.catalog.list_runs()
            key = (page.name, listing.stamp)
            lack: str = self.results.notes.get(key, lambda: find(self.store, listing.runs))
            return lack
        first = ""
        with suppress(TracekitError):
            for name in page.covers or page.prefetch:
                lack = self.results.find_lack(run, name)
                if not lack:
                    return ""
                first = first or lack
            return first
        return ""

    def run(self, run_id: str) -> Run | None:
        """Return the run with this full id, or None; the id is never used as a path."""
        return self.catalog.list_runs().find(run_id)

    def context(self, view: View, *, dark: bool) -> Context:
        """Resolve a view to the context of its blocks; without a run, the latest is used."""
        listing = self.catalog.list_runs()
        chosen = listing.find(view.run) if view.run else next(reversed(listing.runs), None)
        filled = replace(view, run=chosen.path.name) if chosen else view
        base = listing.find(view.base) if view.base else None
        return Context(
            view=filled, dark=dark, store=self.store, results=self.results, chosen=chosen, base=base
        )

    def context_of(self, view: Mapping[str, str], theme: str = "") -> Context:
        """Resolve the view that the browser shows, as callbacks receive it."""
        return self.context(View.parse(view["path"], view["search"]), dark=theme == "dark")

    def context_of_request(self, page: str) -> Context:
        """Resolve the query of the current request, as a view of a page."""
        return self.context(View.parse(page, request.query_string.decode(errors="replace")), dark=False)
