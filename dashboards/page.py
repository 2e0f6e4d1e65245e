"""What a page is: metadata for the menu, a layout that is cheap, and blocks that are computed when looked at.

A page is a value, registered under the entry point group `tracekit.pages` by built-ins and outsiders alike.
Its layout places blocks; each block is a pure function from a `Context` to a component, called in a thread
of its own when the page is opened and again when what it looks at changes. A block that fails says so in its
place, and the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dash.development.base_component import Component

    from tracekit.analysis import Finding

    from .context import Context
    from .site import Site

    Block: TypeAlias = Callable[[Context], Component | list[Component]]


class Section(StrEnum):
    """Headings of the menu, in order."""

    START = "Start"
    TIME = "Where time goes"
    DEVICE = "Device work"
    HOST = "Host and memory"
    MORE = "More analyses"
    COMPARE = "Compare"
    HELP = "Help"


class Needs(StrEnum):
    """What must be chosen before a page has anything to show."""

    NOTHING = "nothing"
    RUN = "a run"


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page.

    Attributes:
        name: Registered name, also its path.
        title: Heading and menu entry.
        question: The question it answers, in one sentence.
        section: Heading of the menu under which it stands.
        order: Place among all pages.
        layout: What it places, without computing: controls, and `block(...)` for what is computed.
        blocks: What is computed, by name.
        needs: What must be chosen first.
        covers: Analyses that it shows whole; they have no page of their own in the menu.
        exports: Analyses that its files hold besides those it covers.
        advice: Findings with which its report opens, in place of those of each analysis alone.
        ahead: Analyses that are begun when the address is asked for, the quickest first; by default those
            that it covers.
        connect: Adds what goes beyond blocks (callbacks, routes), once per app.
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
    ahead: tuple[str, ...] = ()
    connect: Callable[[Site], None] | None = None
