"""Page definition: menu metadata, a cheap layout, and blocks that are computed on demand.

Built-in and external pages are registered under the entry point group `tracekit.pages`. The layout places
blocks; each block is a pure function from a `Context` to a component, called in a separate request when the
page is opened and whenever the view changes. A block that fails shows its error; other blocks are unaffected.

An address is the page's name and a query, as in `/timeline?run=ID&rank=0&from=100&to=900`. Query parameters
that are not a field of `View` are options of the page.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

import dash_mantine_components as dmc
from dash import MATCH, ClientsideFunction, Input, Output, State, dcc, html, no_update

from tracekit.errors import TracekitError
from tracekit.schema import TABLES

from .parts.charts import aria

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dash.development.base_component import Component

    from tracekit.analysis import Finding

    from .site import Context, Site

    Block: TypeAlias = Callable[[Context], Component | list[Component]]


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
    advice: Callable[[Context], Sequence[Finding]] | None = None
    prefetch: tuple[str, ...] = ()
    connect: Callable[[Site], None] | None = None


HOME = "runs"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ROW = re.compile(r"([a-z_]{1,40}):(\d{1,12})")
_LONGEST = 200
_NUMBER = re.compile(r"-?\d{1,18}")


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
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, path: str | None, search: str | None) -> View:
        """Parse an address; malformed parameters are ignored."""
        page = (path or "").strip("/") or HOME
        words = {name: value[:_LONGEST] for name, value in parse_qsl((search or "").lstrip("?"))}
        row = words.pop("row", "")
        return cls(
            page=page if _NAME.fullmatch(page) else "",
            run=words.pop("run", ""),
            base=words.pop("base", ""),
            rank=_integer(words.pop("rank", "")),
            device=_integer(words.pop("device", "")),
            start_ns=_integer(words.pop("from", "")),
            end_ns=_integer(words.pop("to", "")),
            row=row if selected(row) else "",
            options={name: value for name, value in words.items() if _NAME.fullmatch(name)},
        )

    def search(self) -> str:
        """Return the query string with the question mark; empty if all fields have defaults."""
        words = {
            "run": self.run,
            "base": self.base,
            "rank": self.rank,
            "device": self.device,
            "from": self.start_ns,
            "to": self.end_ns,
            "row": self.row,
            **self.options,
        }
        query = urlencode({name: value for name, value in words.items() if value not in {None, ""}}, safe=":")
        return f"?{query}" if query else ""

    def href(self, **changes: Any) -> str:
        """Return the address of this view with some fields changed.

        Args:
            changes: Fields by name, as in `dataclasses.replace`.
        """
        changed = replace(self, **changes)
        return f"/{changed.page}{changed.search()}"

    def elsewhere(self, page: str, **changes: Any) -> str:
        """Return the address of another page with the same runs, rank and device."""
        other = replace(self, page=page, start_ns=None, end_ns=None, row="", options={})
        return other.href(**changes)


def _integer(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def selected(row: str) -> tuple[str, int] | None:
    """Parse a selected row into table and row id; None if it is invalid.

    Example:
        >>> selected("device_intervals:7"), selected("passwd:1")
        (('device_intervals', 7), None)
    """
    match = _ROW.fullmatch(row)
    return (match[1], int(match[2])) if match and match[1] in TABLES else None


_LOG = logging.getLogger(__name__)
KIND = "block"
AGAIN = "again"
"""Type of the store whose change recomputes a block."""
RETRY = "retry"


def block(page: str, name: str, *, height: int = 120) -> Component:
    """Create the placeholder of a block.

    Args:
        page: Name of the page.
        name: Name of the block, unique on the page.
        height: Height of the skeleton in pixels; close to the final height, to avoid layout shift.
    """
    place = html.Div(
        dmc.Skeleton(height=height, radius="sm"),
        id={"type": KIND, "page": page, "name": name},
        className="tk-block",
        **aria(busy="true"),
    )
    return html.Div([place, dcc.Store(id={"type": AGAIN, "page": page, "name": name})])


def connect(site: Site) -> None:
    """Register the callbacks that fill and retry blocks."""

    @site.app.callback(
        Output({"type": KIND, "page": MATCH, "name": MATCH}, "children"),
        Output({"type": KIND, "page": MATCH, "name": MATCH}, "aria-busy"),
        Input("view", "data"),
        Input("theme", "data"),
        Input({"type": AGAIN, "page": MATCH, "name": MATCH}, "data"),
        State({"type": KIND, "page": MATCH, "name": MATCH}, "id"),
    )
    def fill(view: dict[str, str], theme: str, _: Any, place: dict[str, str]) -> tuple[Any, Any]:
        requested = View.parse(view["path"], view["search"])
        if requested.page != place["page"]:
            return no_update, no_update  # the user has navigated away
        return content(site, requested, place["name"], dark=theme == "dark"), "false"

    site.app.clientside_callback(
        ClientsideFunction("tracekit", "again"),
        Output({"type": AGAIN, "page": MATCH, "name": MATCH}, "data"),
        Input({"type": RETRY, "page": MATCH, "name": MATCH}, "n_clicks"),
        prevent_initial_call=True,
    )


def content(site: Site, view: View, name: str, *, dark: bool) -> Any:
    """Compute a block, or an error message if it failed."""
    try:
        return site.pages[view.page].blocks[name](site.context(view, dark=dark))
    except TracekitError as error:
        return error_alert(error.message, error.hint, again=(view.page, name))
    except Exception as error:
        _LOG.exception("block %s of page %s failed", name, view.page)
        return error_alert(
            f"this section failed: {type(error).__name__}",
            "see the traceback in the terminal that runs the dashboard",
            again=(view.page, name),
        )


def error_alert(message: str, hint: str = "", *, again: tuple[str, str] | None = None) -> Component:
    """Show an error with its hint.

    Args:
        message: What went wrong.
        hint: What to do.
        again: Page and block that the retry button recomputes; None for no button.
    """
    retry = []
    if again:
        place = {"type": RETRY, "page": again[0], "name": again[1]}
        retry.append(html.Button("Try again", id=place, className="tk-button"))
    return dmc.Alert(
        [*([html.P(hint)] if hint else []), *retry],
        title=message,
        color="red",
        variant="light",
        className="tk-error",
    )
