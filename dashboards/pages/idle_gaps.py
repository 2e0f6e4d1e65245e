"""Idle gaps page: causes of device idle time, and synchronization points of the host."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis.idle_causes import QUEUED, IdleCause
from tracekit.schema import C

from ..analysis_pages.pages import result_blocks
from ..analysis_pages.results import PageResults, show_advice
from ..blocks import block
from ..components import links
from ..components.charts import Tile, chart, make_tiles
from ..components.finding import show_definition
from ..components.text import block_title, show_note
from ..figures import gaps as figures
from ..site import Context, Page, Section
from ..tables.table import MAX_ROWS, show_table
from .key_numbers import device_window, tile_blocks, tiles_with_baseline

NAME, WAITS = "idle_gaps", "sync_points"
_PLACE = [C.RANK, C.DEVICE]
_OPS = 15
_LISTED = 2_000


def _layout(_: Context) -> list[Component]:
    halves = [html.Div(block(NAME, name, height=320), className="tk-half") for name in ("causes", "lengths")]
    return [
        block(NAME, "window", height=22),
        tile_blocks(NAME, "numbers"),
        html.Div(halves, className="tk-halves"),
        block(NAME, "ops", height=420),
        block(NAME, "advice", height=120),
        block(NAME, "longest", height=480),
        block(NAME, "waits", height=300),
        *(show_definition(analysis.get(name), named=True) for name in (NAME, WAITS)),
    ]


CAPTURE = "the capture"


def _window(results: PageResults) -> list[Component]:
    """Say once of what window all numbers of the page but those of its tables are: that of the verdict."""
    rows, window = device_window(results)
    if rows.empty:
        return []
    said = "All numbers" if window == CAPTURE else f"Tiles and charts: {window}. Tables"
    return [html.P(f"{said}: {CAPTURE}.", className="tk-dim", id="idle-window")]


def _numbers(results: PageResults) -> list[Component]:
    return tiles_with_baseline(results, _tiles) or PageResults(results.context, (NAME,)).show_notes()


def _tiles(results: PageResults) -> list[Tile]:
    frame, gaps = _by_cause(results), _counted_gaps(results)
    tiles = make_tiles(
        device_window(results)[0]["idle_share"], label="GPU idle", unit="share", note="nothing runs"
    )
    if frame.empty:
        return tiles
    places = frame.set_index(_PLACE)[figures.IDLE]
    queued, unknown = frame["cause"].isin(QUEUED).to_numpy(), (frame["cause"] == IdleCause.UNKNOWN).to_numpy()
    for label, chosen, note in (
        ("Caused by the host", ~queued & ~unknown, "the host launched late"),
        ("Work was queued", queued, "between kernels, stream dependencies"),
        ("Unknown cause", unknown, "next launch not recorded"),
    ):
        sums = places.where(chosen, 0).groupby(level=[0, 1]).sum()
        tiles += make_tiles(sums, label=label, unit="ns", note=note)
    longest = make_tiles(gaps[C.DUR_NS].head(1), label="Longest gap", unit="ns", note="by its whole length")
    counts = gaps.groupby(_PLACE).size()
    return [*tiles, *make_tiles(counts, label="Gaps", unit="count", note="of at least 1 µs"), *longest]


def _by_cause(results: PageResults) -> pd.DataFrame:
    """Return the idle time of each device and cause in the window of the verdict."""
    frame, before = results.frame("by_cause"), results.frame("before_work")
    idle_ns = frame["steps_ns"].fillna(frame[figures.IDLE]) - frame["aside_ns"]
    counted = frame[[*_PLACE, "cause", "gaps"]].assign(idle_ns=idle_ns)
    openings = before[[*_PLACE, "cause"]].assign(idle_ns=before[C.DUR_NS], gaps=1)
    return _sum([part for part in (counted, openings) if len(part)], "cause")


def _counted_gaps(results: PageResults) -> pd.DataFrame:
    """Return the gaps that are in the window of the verdict, longest first."""
    frame = results.frame("gaps")
    return frame[frame["counted_ns"] > 0]


def _sum(parts: list[pd.DataFrame], *keys: str) -> pd.DataFrame:
    """Sum idle time and gaps of each device by these columns, with their share of it, longest first."""
    if not parts:
        return pd.DataFrame(columns=[*_PLACE, *keys, figures.IDLE, figures.COUNT, "share"])
    rows = pd.concat(parts, ignore_index=True).astype({figures.IDLE: "int64", figures.COUNT: "int64"})
    sums = rows.groupby([*_PLACE, *keys], sort=False, observed=True, as_index=False).sum()
    totals = sums.groupby(_PLACE)[figures.IDLE].transform("sum")
    sums["share"] = sums[figures.IDLE] / totals.where(totals > 0, 1)
    return sums[sums[figures.IDLE] > 0].sort_values(figures.IDLE, ascending=False, kind="stable")


def _causes(results: PageResults) -> list[Component]:
    frame = _by_cause(results)
    if frame.empty:
        return []
    places = links.device_names(frame)
    what = "Idle time by cause" if len(set(places)) > 1 else "Idle time and share by cause"
    caption = f"{what}. Blue: the work was already queued. Warm colors: the host launched late."
    figure = figures.by_cause(frame, places)
    return [block_title("By cause"), chart(results.context, "causes", figure, caption=caption)]


def _lengths(results: PageResults) -> list[Component]:
    frame = _counted_gaps(results)
    if frame.empty:
        return []
    caption = f"Idle time by gap length: {len(frame):,} gaps of at least 1 µs."
    figure = chart(results.context, "lengths", figures.lengths(frame), caption=caption)
    return [block_title("By gap length"), figure]


def _ops(results: PageResults) -> list[Component]:
    gaps = _counted_gaps(results)
    by_op = gaps[[*_PLACE, "cause", "op"]].assign(idle_ns=gaps["counted_ns"], gaps=1)
    frame = _sum([by_op] if len(gaps) else [], "cause", "op")
    if frame.empty:
        return []
    top = frame.head(_OPS)
    names = links.with_device_names(top, [str(op) or "(no op)" for op in top["op"].tolist()])
    which = f"{len(top)} largest of {len(frame):,} pairs" if len(top) < len(frame) else "All pairs"
    whose = "their device's" if len(set(links.device_names(frame))) > 1 else "the"
    caption = f"{which} of cause and op, with their share of {whose} idle time; colors as above."
    figure = chart(results.context, "ops", figures.by_op(top, names), caption=caption)
    return [block_title("By blocking op"), figure]


def _longest(results: PageResults) -> list[Component]:
    frame, context = results.frame("gaps"), results.context
    if frame.empty:
        return []
    everything = len(frame) == len(context.result(NAME).tables["gaps"]) and len(frame) > MAX_ROWS
    shown = frame if everything or len(frame) <= _LISTED else frame.head(_LISTED)
    words = (
        "Longest gaps of the capture"
        if len(shown) == len(frame)
        else f"{_LISTED:,} longest of {len(frame):,} gaps"
    )
    return [show_table(context, NAME, results.spec("gaps"), shown, title=words)]


def _waits(results: PageResults) -> list[Component]:
    shown = results.grids({"waits": "Host waits", "calls": "Longest waits"}, WAITS)
    of_gaps, of_waits = (results.context.result(name).notes for name in (NAME, WAITS))
    notes = [show_note(note) for note in of_waits if note not in of_gaps]
    return shown or ([block_title("Host waits"), *notes] if notes else [])


PAGE = Page(
    name=NAME,
    title="Idle gaps",
    question="Why were the devices idle, and which host op or call caused it?",
    section=Section.TIME,
    order=120,
    layout=_layout,
    blocks=result_blocks(
        (NAME, WAITS),
        window=_window,
        numbers=_numbers,
        causes=_causes,
        lengths=_lengths,
        ops=_ops,
        advice=show_advice,
        longest=_longest,
        waits=_waits,
    ),
    covers=(NAME, WAITS),
    exports=(NAME, WAITS, "gpu_breakdown"),
)
