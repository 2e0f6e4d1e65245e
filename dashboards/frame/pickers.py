"""Run, baseline, rank and device pickers at the top of every page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import Input, Output, State, ctx, html, no_update

from tracekit.errors import TracekitError

from ..parts.aria import aria
from ..parts.names import display_name
from ..view import View
from .devices import present

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.run import Run

    from ..context import Context
    from ..site import Site

NAMES = ("run", "base", "rank", "device")
ALL = ""
_OPTIONS_SHOWN = 100


def pickers() -> list[Component]:
    """Create the four pickers; each stays hidden until it has options."""
    return [
        _picker("run", "Run", section=44, searchable=True),
        _picker("base", "Baseline", section=72, searchable=True, clearable=True, placeholder="none"),
        _picker("rank", "Rank", section=48),
        _picker("device", "Device", section=58),
    ]


def _picker(name: str, label: str, *, section: int, **options: Any) -> Component:
    select = dmc.Select(
        id=name,
        data=[],
        size="xs",
        allowDeselect=False,
        leftSection=html.Span(label, className="tk-choice-label"),
        leftSectionWidth=section,
        limit=_OPTIONS_SHOWN,
        maxDropdownHeight=360,
        nothingFoundMessage="no match",
        comboboxProps={"width": "max-content", "position": "bottom-start", "shadow": "md"},
        **options,
        **aria(label=label),
    )
    return html.Div(select, id=f"{name}-box", className=f"tk-choice tk-choice-{name}", hidden=True)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """State of a picker.

    Attributes:
        options: The options.
        value: The selected option.
        hidden: Whether there is nothing to choose.
        title: Full text of the value, for the tooltip.
    """

    options: list[dict[str, str]]
    value: str | None
    hidden: bool
    title: str = ""


def offers(site: Site, context: Context) -> list[Offer]:
    """Return the state of each picker, in the order of `NAMES`."""
    runs = [
        {"value": run.path.name, "label": display_name(run)}
        for run in reversed(site.catalogue.listing().runs)
    ]
    view, run = context.view, context.chosen
    ranks, devices = _present(site, run) if run else ([], [])
    others = [option for option in runs if option["value"] != view.run]
    return [
        Offer(options=runs, value=view.run or None, hidden=not runs, title=view.run),
        Offer(options=others, value=view.base or None, hidden=len(runs) < 2, title=view.base),
        _numbers(ranks, view.rank),
        _numbers(devices, view.device),
    ]


def _present(site: Site, run: Run) -> tuple[list[int], list[int]]:
    try:
        found: tuple[list[int], list[int]] = site.results.get((run.path, present), lambda: present(run))
    except TracekitError:
        return [], []  # the page shows the error
    return found


def _numbers(values: list[int], chosen: int | None) -> Offer:
    options = [{"value": ALL, "label": "all"}, *({"value": str(one), "label": str(one)} for one in values)]
    value = ALL if chosen is None else str(chosen)
    return Offer(options=options, value=value, hidden=len(values) < 2 and chosen is None)


def connect(site: Site) -> None:
    """Register the callbacks that fill the pickers and write choices to the address."""

    @site.app.callback(
        *(Output(name, prop) for name in NAMES for prop in ("data", "value")),
        *(Output(f"{name}-box", prop) for name in NAMES for prop in ("hidden", "title")),
        Input("view", "data"),
        Input("tick", "n_intervals"),
        State("run", "data"),
    )
    def offer(view: dict[str, str] | None, _: int, known: list[dict[str, str]]) -> list[Any]:
        if view is None:
            return [no_update] * 16
        context = site.context(View.parse(view["path"], view["search"]), dark=False)
        offered = offers(site, context)
        if ctx.triggered_id == "tick" and offered[0].options == known:
            return [no_update] * 16
        values = [value for one in offered for value in (one.options, one.value)]
        return values + [value for one in offered for value in (one.hidden, one.title)]

    @site.app.callback(
        Output("url", "search"),
        *(Input(name, "value") for name in NAMES),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(
        run: str | None, base: str | None, rank: str | None, device: str | None, view: dict[str, str] | None
    ) -> Any:
        if view is None:
            return no_update
        before = site.context(View.parse(view["path"], view["search"]), dark=False).view
        after = chosen(before, run or "", base or "", _number(rank), _number(device))
        return no_update if after == before else after.search()


def chosen(before: View, run: str, base: str, rank: int | None, device: int | None) -> View:
    """Return the view after a choice; a new run resets rank, device, range and row."""
    if run and run != before.run:
        return View(page=before.page, run=run, base="" if base == run else base, options=before.options)
    return replace(before, base=base, rank=rank, device=device)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.removeprefix("-").isdecimal() else None
