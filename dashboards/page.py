"""Page definition: menu metadata, a cheap layout, and blocks that are computed on demand.

Built-in and external pages are registered under the entry point group `tracekit.pages`. The layout places
blocks; each block is a pure function from a `Context` to a component, called in a separate request when the
page is opened and whenever the view changes. A block that fails shows its error; other blocks are unaffected.
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
    """Menu headings, in order."""

    START = "Start"
    TIME = "Where time goes"
    DEVICE = "Device work"
    HOST = "Host and memory"
    MORE = "More analyses"
    COMPARE = "Compare"
    HELP = "Help"


class Needs(StrEnum):
    """What must be selected before a page can show anything."""

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
