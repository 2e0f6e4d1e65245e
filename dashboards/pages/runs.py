"""Runs page: list of runs with step times, deletion, and a welcome for empty stores."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update

from tracekit import analysis
from tracekit.errors import TracekitError, UnusableInputError, clean
from tracekit.render import human
from tracekit.runs.meta import Level, together
from tracekit.runs.text import MISSING

from ..blocks import error_alert
from ..parts.charts import aria, data
from ..parts.links import commit_name, gpu_names, source_files
from ..site import Needs, Page, Section, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from tracekit.runs.meta import RunMeta
    from tracekit.runs.run import Run

    from ..catalogue import Listing
    from ..site import Context, Site


def ask() -> Component:
    """Create the Delete button."""
    return html.Button(
        "Delete…", id="runs-delete", className="tk-button", disabled=True, title="Select runs to delete"
    )


def deleting() -> list[Component]:
    """Create the confirmation dialog."""
    buttons = [
        html.Button("Cancel", id="runs-cancel", className="tk-button", **data(autofocus="true")),
        html.Button("Delete", id="runs-confirm", className="tk-button tk-danger"),
    ]
    content = [
        html.Div(id="runs-to-delete"),
        html.Div(id="runs-error"),
        html.Div(buttons, className="tk-buttons"),
    ]
    return [
        dmc.Modal(content, id="runs-sheet", title="Delete runs", size="lg", opened=False),
        dcc.Store(id="runs-deleted"),
    ]


def connect_deleting(site: Site) -> None:
    """Register the callbacks."""

    @site.app.callback(
        Output("runs-delete", "disabled"),
        Output("runs-to-delete", "children"),
        Input("runs-grid", "selectedRows"),
    )
    def choose(selected: list[dict[str, Any]] | None) -> tuple[bool, Any]:
        names = [row["run"] for row in selected or []]
        return not names, _named(names)

    @site.app.callback(
        Output("runs-sheet", "opened"),
        Output("runs-error", "children"),
        Input("runs-delete", "n_clicks"),
        prevent_initial_call=True,
    )
    def begin(clicks: int | None) -> tuple[Any, Any]:
        return (True, None) if clicks else (no_update, no_update)

    site.app.callback(
        Output("runs-sheet", "opened", allow_duplicate=True),
        Input("runs-cancel", "n_clicks"),
        prevent_initial_call=True,
    )(lambda clicks: False if clicks else no_update)

    @site.app.callback(
        Output("runs-sheet", "opened", allow_duplicate=True),
        Output("runs-error", "children", allow_duplicate=True),
        Output("runs-grid", "selectedRows"),
        Output("runs-deleted", "data"),
        Output("url", "search", allow_duplicate=True),
        Input("runs-confirm", "n_clicks"),
        State("runs-grid", "selectedRows"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def confirm(
        clicks: int | None, selected: list[dict[str, Any]] | None, view: dict[str, str] | None
    ) -> Any:
        if not clicks or view is None:
            return [no_update] * 5
        names = [str(row["run"]) for row in selected or []]
        try:
            delete(site, names)
        except TracekitError as error:
            return True, error_alert(error.message, error.hint), no_update, names, no_update
        current = View.parse(view["path"], view["search"])
        address = "" if {current.run, current.base} & set(names) else no_update
        return False, None, [], names, address


def _named(names: Sequence[str]) -> Component:
    many = len(names) != 1
    return html.Div(
        [
            html.P(f"Delete {len(names)} run{'s' * many} from the store? This cannot be undone."),
            html.Ul([html.Li(name) for name in names], className="tk-to-delete"),
        ]
    )


def delete(site: Site, names: Sequence[str]) -> None:
    """Delete runs by name; missing ones are ignored.

    Raises:
        UnusableInputError: A run is a link out of the store, or cannot be deleted.
    """
    for name in names:
        run = site.run(name)
        if run is None:
            continue
        if run.path.resolve().parent != site.store.path.resolve():
            raise UnusableInputError(f"{name} is not in the store", hint="delete the folder yourself")
        site.store.remove(run)


def command(text: str) -> Component:
    """Show a command with a copy button."""
    copy = dmc.CopyButton(
        value=text, children="Copy", copiedChildren="Copied", size="compact-xs", variant="default"
    )
    return html.Div([html.Code(text), copy], className="tk-command", **aria(label=text), role="group")


def welcome() -> list[Component]:
    """Show three ways to get a first run."""
    return [
        html.Section(
            [
                _card(
                    "Import a trace",
                    "Drop a torch.profiler trace (.json, .json.gz) or an Nsight Systems export (.sqlite) "
                    "anywhere on this page. Drop the traces of all ranks together to get one run.",
                    html.Button("Choose files", className="tk-button tk-primary tk-import-pick tk-first"),
                    command("tracekit import trace.json.gz"),
                ),
                _card(
                    "Record a run",
                    "Profile a built-in workload or your own program; the run appears here when it finishes.",
                    command("tracekit collect --workload resnet50"),
                    command("tracekit collect -- python train.py"),
                ),
                _card(
                    "Try the samples",
                    "Two CPU runs that differ in how gradients are zeroed, and a run of a simulated GPU.",
                    html.Button("Load the samples", className="tk-button tk-import-samples"),
                ),
            ],
            className="tk-cards",
            **aria(label="The store has no runs yet"),
        )
    ]


def _card(title: str, text: str, *content: Component) -> Component:
    return html.Div([html.H2(title), html.P(text), *content], className="tk-card")


if TYPE_CHECKING:
    Row: TypeAlias = dict[str, Any]

MEASURE = "window"
PENDING = "…"
BUDGET_S = 0.8
"""Seconds per refresh to spend on step times."""


@dataclass(frozen=True)
class Steps:
    """Number and median duration of a run's steps; None without steps."""

    count: int | None = None
    median_ns: int | None = None


@dataclass
class StepTimes:
    """Step times of runs, computed incrementally after the list is shown."""

    _known: dict[str, Steps] = field(default_factory=dict)
    _serial: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Run) -> Steps | None:
        """Return the step times of a run; None if not computed yet."""
        return self._known.get(run.path.name) if run.rows("steps") else Steps()

    def work(self, runs: Sequence[Run], *, budget_s: float = BUDGET_S) -> bool:
        """Compute some missing step times; return whether any were missing."""
        if not self._serial.acquire(blocking=False):
            return False  # another request is computing them
        try:
            pending = [run for run in runs if self.of(run) is None]
            end = time.monotonic() + budget_s
            for run in pending:
                self._known[run.path.name] = _steps(run)
                if time.monotonic() > end:
                    break
        finally:
            self._serial.release()
        return bool(pending)


def _steps(run: Run) -> Steps:
    """Return the window of the `steps` analysis at the lowest rank."""
    try:
        summary = analysis.analyze(run, "steps").tables.get("summary")
    except TracekitError:
        return Steps()
    if summary is None:
        return Steps()
    lowest = summary[summary["measure"] == MEASURE].sort_values("rank").head(1)
    values = lowest[["steps", "median_ns"]].to_dict("records")
    return Steps(int(values[0]["steps"]), int(values[0]["median_ns"])) if values else Steps()


def rows(runs: Sequence[Run], times: StepTimes) -> list[Row]:
    """Return one row per run, newest first."""
    return [_row(run, times.of(run)) for run in reversed(runs)]


def _row(run: Run, steps: Steps | None) -> Row:
    meta = run.meta
    workload = meta.workload or {}
    size = sum(table.bytes for table in meta.tables.values())
    known = steps or Steps()
    return {
        "run": run.path.name,
        "label": clean(meta.label) if meta.label else None,
        "workload": _text(workload.get("name")),
        "mode": _text(workload.get("mode")),
        "device": _text(workload.get("device")),
        "gpu": gpu_names(meta) or None,
        "created": meta.created_at.replace("T", " ").removesuffix("Z"),
        "steps": known.count,
        "steps_text": human(known.count, "count") if steps else PENDING,
        "step": known.median_ns,
        "step_text": human(known.median_ns, "ns") if steps else PENDING,
        "source": (source_files(meta) if meta.collector.name == "import" else "")
        or clean(meta.collector.name),
        "commit": commit_name(meta.git, 9) or None,
        "size": size,
        "size_text": human(size, "bytes"),
        "diagnostics": _counted(meta),
        "messages": "\n".join(clean(one.message) for one in together(meta.diagnostics)) or None,
    }


def _text(value: Any) -> str | None:
    return None if value is None else clean(str(value))


def _counted(meta: RunMeta) -> str | None:
    levels = [one.level for one in meta.diagnostics]
    words = {Level.ERROR: "error", Level.WARN: "warning", Level.INFO: "info message"}
    counted = [(levels.count(level), word) for level, word in words.items()]
    return ", ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counted if count) or None


def columns(listed: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the columns that have data."""
    return [one for one in _COLUMNS if one["field"] in _ALWAYS or any(row[one["field"]] for row in listed)]


def _column(name: str, title: str, meaning: str, width: int, **more: Any) -> dict[str, Any]:
    return {
        "field": name,
        "headerName": title,
        "headerTooltip": meaning,
        "tooltipField": name,
        "width": width,
        "minWidth": width,
        "filter": "agTextColumnFilter",
        "valueFormatter": {"function": f"params.value === null ? '{MISSING}' : params.value"},
        **more,
    }


def _number(name: str, title: str, meaning: str, width: int) -> dict[str, Any]:
    shown = f"{name}_text"
    return _column(
        name,
        title,
        meaning,
        width,
        filter="agNumberColumnFilter",
        type="rightAligned",
        tooltipField=shown,
        valueFormatter={"function": f"params.data.{shown}"},
    )


_ALWAYS = {"run", "created", "steps", "step", "size"}
_COLUMNS = [
    _column("run", "run", "run id; opens the overview", 375, cellRenderer="RunLink", flex=3),
    _column("label", "label", "user-defined label", 150),
    _column("workload", "workload", "workload name", 120),
    _column("mode", "mode", "train or infer", 80),
    _column("device", "device", "device type of the workload", 85),
    _number("step", "step time", "median step window of the lowest rank (analysis `steps`)", 110),
    _number("steps", "steps", "number of steps without warm-up outliers", 95),
    _column("gpu", "GPU", "GPUs in the recording", 200, flex=2),
    _column("created", "created (UTC)", "time of recording or import", 165),
    _column("commit", "commit", "recorded commit; + marks uncommitted changes", 115),
    _number("size", "size", "size of the Parquet files", 100),
    _column("diagnostics", "diagnostics", "errors and warnings of the import", 150, tooltipField="messages"),
    _column("source", "recorded by", "collector, or imported file", 170, flex=2),
]


REFRESH_MS = 1_200
_ROW, _HEADER = 30, 34
_OPTIONS = {
    "selectionColumnDef": {"pinned": "left", "width": 44, "maxWidth": 44},
    "rowSelection": {"mode": "multiRow", "checkboxes": True, "headerCheckbox": True},
    "rowHeight": _ROW,
    "headerHeight": _HEADER,
    "tooltipShowDelay": 400,
    "enableCellTextSelection": True,
    "ensureDomOrder": True,
}


def _layout(_: Context) -> list[Component]:
    grid = dag.AgGrid(
        id="runs-grid",
        className="tk-grid tk-runs",
        columnDefs=columns([]),
        defaultColDef={"sortable": True, "resizable": True},
        rowData=[],
        getRowId="params.data.run",
        dashGridOptions=_OPTIONS,
        style={"height": _height(3)},
    )
    listed = html.Div([_bar(), grid, html.Div(id="runs-unreadable")], id="runs-list", hidden=True)
    return [
        listed,
        html.Div(welcome(), id="runs-welcome", hidden=True),
        *deleting(),
        dcc.Store(id="runs-known"),
        dcc.Interval(id="runs-tick", interval=REFRESH_MS),
    ]


def _bar() -> Component:
    find = dmc.TextInput(id="runs-find", placeholder="Filter runs", size="xs", **aria(label="Filter runs"))
    return html.Div(
        [
            html.Div(find, className="tk-runs-find", **data(search="")),
            html.Span(_comparing(None, []), id="runs-compare"),
            ask(),
            html.Span(id="runs-count", className="tk-status", role="status"),
        ],
        className="tk-bar",
    )


def _height(count: int) -> str:
    return f"min(calc(100vh - 200px), {_HEADER + _ROW * max(count, 3) + 18}px)"


def connect(site: Site) -> None:
    """Register the callbacks of the list."""
    connect_deleting(site)
    _connect_list(site)

    @site.app.callback(
        Output("runs-compare", "children"),
        Input("runs-grid", "selectedRows"),
        State("view", "data"),
    )
    def comparing(selected: list[dict[str, Any]] | None, view: dict[str, str] | None) -> Any:
        known = [run.path.name for run in site.catalogue.listing().runs]
        chosen = sorted((row["run"] for row in selected or [] if row["run"] in known), key=known.index)
        before = View.parse(view["path"], view["search"]) if view else View()
        return _comparing(before, chosen)

    site.app.clientside_callback(
        ClientsideFunction("tracekit", "runsFind"),
        Output("runs-grid", "dashGridOptions"),
        Input("runs-find", "value"),
        State("runs-grid", "dashGridOptions"),
    )


def _connect_list(site: Site) -> None:
    times = StepTimes()

    @site.app.callback(
        Output("runs-grid", "rowData"),
        Output("runs-grid", "columnDefs"),
        Output("runs-grid", "style"),
        Output("runs-unreadable", "children"),
        Output("runs-list", "hidden"),
        Output("runs-welcome", "hidden"),
        Output("runs-count", "children"),
        Output("runs-known", "data"),
        Input("runs-tick", "n_intervals"),
        Input("tick", "n_intervals"),
        Input("runs-deleted", "data"),
        State("runs-known", "data"),
    )
    def refresh(_: int, __: int, ___: Any, known: str | None) -> list[Any]:
        listing = site.catalogue.listing()
        if known is None:  # show the list before computing step times
            return shown(listing, times)
        worked = times.work(listing.runs[::-1])
        return shown(listing, times) if worked or str(listing.stamp) != known else [no_update] * 8


def shown(listing: Listing, times: StepTimes) -> list[Any]:
    """Return the callback outputs that show a listing."""
    listed = rows(listing.runs, times)
    left_out = [error_alert(f"skipped {one.name}: {one.message}", one.hint) for one in listing.unreadable]
    empty = not listed and not left_out
    count = f"{len(listed):,} run{'s' * (len(listed) != 1)}"
    style = {"height": _height(len(listed))}
    return [listed, columns(listed), style, left_out, empty, not empty, count, str(listing.stamp)]


def _comparing(view: View | None, chosen: list[str]) -> Component:
    """Return a link that compares two runs with the older as baseline; a disabled button otherwise."""
    if view is None or len(chosen) != 2:
        return html.Button("Compare", className="tk-button", disabled=True, title="Select two runs")
    href = replace(view, run=chosen[1], base=chosen[0]).elsewhere("compare", rank=None, device=None)
    return html.A("Compare", href=href, className="tk-button tk-go", title="The older run is the baseline")


PAGE = Page(
    name="runs",
    title="Runs",
    question="Which runs are in the store?",
    section=Section.START,
    order=0,
    layout=_layout,
    needs=Needs.NOTHING,
    connect=connect,
)
