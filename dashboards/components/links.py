"""Choices as links, commands with a copy button, and names and rows of results."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import dash_mantine_components as dmc
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column, TableSpec
from tracekit.errors import clean
from tracekit.runs import notes
from tracekit.runs.meta import Git, RunMeta
from tracekit.runs.notes import Notes
from tracekit.runs.run import Run
from tracekit.runs.text import ago, shorten
from tracekit.schema import C

from ..figures.axis import COLORWAY
from ..site import View
from .charts import aria

_MAX_CHARS = 60
_NAMED_ID = re.compile(r"\d{8}T\d{6}Z-(.+)-([0-9a-f]{6})")  # ids of runs: their time, name and random end


@dataclass(frozen=True)
class Choice:
    """A choice: text, address, and whether it is active."""

    text: str
    href: str
    chosen: bool = False
    title: str = ""


def show_choices(label: str, offered: Sequence[Choice]) -> Component:
    """Show choices as chips; active ones have a check mark."""
    chips = [
        dcc.Link(
            f"{'✓ ' * choice.chosen}{choice.text}",
            href=choice.href,
            title=choice.title or None,
            className="tk-chip tk-chosen" if choice.chosen else "tk-chip",
        )
        for choice in offered
    ]
    content = [html.Span(label, className="tk-chips-label"), *chips]
    return html.Div(content, role="group", className="tk-chips", **aria(label=label))


def show_option(
    view: View,
    label: str,
    option: str,
    texts: Mapping[str, str],
    chosen: str,
    titles: Mapping[str, str] | None = None,
) -> Component:
    """Show the values of an option of the address as chips.

    Args:
        view: The current view.
        label: What is chosen.
        option: Name of the option.
        texts: Text of each value.
        chosen: The value that is active.
        titles: Tooltip of values.
    """
    hrefs = {value: view.href(options=view.options | {option: value}) for value in texts}
    choices = [
        Choice(text, hrefs[value], value == chosen, (titles or {}).get(value, ""))
        for value, text in texts.items()
    ]
    return show_choices(label, choices)


def show_command(text: str) -> Component:
    """Show a command with a copy button."""
    copy = dmc.CopyButton(
        "Copy",
        value=text,
        copiedChildren="Copied",
        size="compact-xs",
        buttonProps={"variant": "default"},
        **aria(label="Copy the command"),
    )
    return html.Div([html.Code(text, className="tk-command"), copy], className="tk-copyable")


def format_created(created_at: str, zone: str = "") -> str:
    """Return the time of `run.json`, which is UTC, for people: with a space, and a zone after it if given."""
    return created_at.replace("T", " ").replace("Z", zone)


def commit_name(git: Git | None, digits: int = 12) -> str:
    """Return the short SHA, with + for uncommitted changes; empty if unknown."""
    return f"{git.sha[:digits]}{'+' * git.dirty}" if git else ""


def gpu_names(meta: RunMeta) -> str:
    """Return the GPU models with their number; empty without GPUs."""
    names = [clean(str(gpu.get("name") or "unnamed GPU")) for gpu in meta.environment.get("gpus") or []]
    counted = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counted.items())


def source_files(meta: RunMeta) -> str:
    """Return the first imported file and the number of others; empty if unknown."""
    names = [clean(str(source.get("name", ""))) for source in meta.collector.options.get("sources") or []]
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""


def color_of_run(run: Run, noted: Notes | None = None) -> str:
    """Return the color of a run as CSS: that of its notes, else one that depends on its id only.

    `noted` are its notes, if they have been read.
    """
    chosen = (noted or notes.read(run)).color
    if chosen in notes.COLORS:
        return COLORWAY[notes.COLORS.index(chosen)]
    return COLORWAY[zlib.crc32(run.path.name.encode()) % len(COLORWAY)]


def distinct_colors(runs: Sequence[Run]) -> list[str]:
    """Return colors of runs that are shown together: a later run with the color of another has a free one."""
    colors: list[str] = []
    for run in runs:
        own = color_of_run(run)
        free = [color for color in COLORWAY if color not in colors]
        colors.append(free[0] if own in colors and free else own)
    return colors


def color_dot(run: Run, color: str = "") -> Component:
    """Show the color of a run, or that which it has beside others."""
    return html.Span(className="tk-run-dot", style={"background": color or color_of_run(run)})


def display_name(run: Run, now: datetime) -> str:
    """Return label or name, commit, age and end of the id of a run, within 60 characters.

    Args:
        run: The run.
        now: The time of which its age is.
    """
    run_id, header = run.path.name, run.header
    named = _NAMED_ID.fullmatch(run_id)
    label = clean(header.label or "") or (named[1] if named else "")
    if not label:
        return shorten(run_id, _MAX_CHARS)
    parts = [commit_name(header.git, 7), ago(clean(header.created_at), now), named[2] if named else run_id]
    rest = " · ".join(filter(None, parts))
    rest = shorten(rest, _MAX_CHARS // 2 + 4)
    return f"{shorten(label, _MAX_CHARS - len(rest) - 3)} · {rest}"


def with_device_names(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Add the device to the name of each row if there are several."""
    devices = device_names(frame)
    if len(set(devices)) < 2:
        return list(names)
    return [f"{name} · {place}" for name, place in zip(names, devices, strict=True)]


def filter_by_view(frame: pd.DataFrame, view: View) -> pd.DataFrame:
    """Return the rows of the view's rank and device."""
    for column, chosen in ((C.RANK, view.rank), (C.DEVICE, view.device)):
        if chosen is not None and column in frame:
            frame = frame[frame[column] == chosen]
    return frame


def table_column(spec: TableSpec, name: str) -> Column:
    """Return a column of a table.

    Raises:
        KeyError: There is no such column.
    """
    return {column.name: column for column in spec.columns}[name]


def device_names(frame: pd.DataFrame, *, ranks: bool = False) -> list[str]:
    """Format the device of each row, with its rank if several are shown.

    Args:
        frame: A table with rank and device columns.
        ranks: Whether to name the rank even if there is only one.

    Example:
        >>> device_names(pd.DataFrame({"rank": [3, 4], "device": [0, 0]}))
        ['rank 3, device 0', 'rank 4, device 0']
    """
    several = ranks or frame[C.RANK].nunique() > 1
    pairs = zip(frame[C.RANK].tolist(), frame[C.DEVICE].tolist(), strict=True)
    return [f"{f'rank {rank}, ' * several}device {device}" for rank, device in pairs]
