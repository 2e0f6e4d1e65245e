"""The same quantity is the same number on every page of the dashboard and in every command.

Each function below collects one quantity of a run from every place that shows it; all must agree. Traces of
other projects are used where they are present.
"""

from __future__ import annotations

import json
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.test_judgements import SHARED
from tests.shared_runs import TRAINING, copy_of
from tests.unit.dashboards.run_rows import make_rows
from tracekit.analysis import Bottleneck
from tracekit.analysis.cache import ResultCache
from tracekit.analysis.findings import Advice, advise
from tracekit.analysis.idle_causes import label
from tracekit.analysis.verdict import Evidence
from tracekit.cli import main
from tracekit.render import human
from tracekit.runs.meta import Timings
from tracekit.runs.store import Store
from tracekit.schema import C

pytest.importorskip("dash")

from tracekit.dashboards import blocks
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.components.charts import Chart
from tracekit.dashboards.pages.runs.rows import StepTimes
from tracekit.dashboards.pages.sweeps.points import read_points, read_quantity
from tracekit.dashboards.site import Results, Site, View

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

ROOT = Path(__file__).parents[2]
PAGES = load_pages()
TILES = {"overview": ("device_tiles", "work_tiles"), "steps": ("numbers",), "idle_gaps": ("numbers",)}
SAMPLES = ("resnet50-train-cpu", "gpt-train-cpu", "lennard_jones-train-cpu")
RECORDED = (
    *(ROOT / "samples" / "recorded" / name / "trace.json.gz" for name in SAMPLES),
    TRAINING,
    SHARED / "traces" / "pytorch__kineto" / "resnet50_w0_torch19.json.gz",
    SHARED / "traces" / "sidnb13__torch-profiling-tutorial" / "h100_transformer.json.gz",
    SHARED / "traces" / "pytorch__benchmark" / "h2d_pinned_a100.json.gz",
    SHARED / "nsys" / "GindaChen__nsys-ai" / "mfu_2gpu_after.sqlite",
)
_DEFAULT = {TRAINING}


def _marked(path: Path) -> Any:
    absent = pytest.mark.skipif(not path.exists(), reason=f"no trace at {path}")
    return pytest.param(path, id=path.name, marks=[absent, *([] if path in _DEFAULT else [pytest.mark.slow])])


class Shown:
    """Everything that the pages and commands show of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.store = Store(run.path.parent)
        site = Site(
            app=create_app(self.store),
            store=self.store,
            pages=PAGES,
            results=Results(analyze=ResultCache(self.store).analyze),
        )
        self.site, self.results = site, site.results
        self.tiles = {page: self._tiles(page) for page in TILES}
        self.advice: Advice = advise(run, by=self.results.of)
        times = StepTimes()
        times.work([run], budget_s=600)
        (self.row,) = make_rows([run], times)
        self._places: dict[str, Places] = {}

    def places(self, quantity: Callable[[Shown], Places]) -> Places:
        """A quantity by the places that show it, collected once."""
        if quantity.__name__ not in self._places:
            self._places[quantity.__name__] = quantity(self)
        return self._places[quantity.__name__]

    def _tiles(self, page: str) -> dict[str, str]:
        found = {}
        for name in TILES[page]:
            content = blocks.compute_block(
                self.site, View(page=page, run=self.run.path.name), name, dark=False
            )
            for tile in content if isinstance(content, list) else []:
                if getattr(tile, "className", "") == "tk-tile":
                    words = [text(part) for part in tile.children]
                    said = f"{words[2:3]} {self._window(page)}"
                    assert not words[2:3] or named(said), f"{page}: {words} names no window"
                    found[words[0]] = words[1]
        return found

    def _window(self, page: str) -> str:
        """What a page says once of the window of its numbers."""
        if "window" not in PAGES[page].blocks:
            return ""
        return text(
            blocks.compute_block(self.site, View(page=page, run=self.run.path.name), "window", dark=False)
        )

    def table(self, name: str, table: str) -> pd.DataFrame | None:
        """Table of an analysis, by the command."""
        return self.results.of(self.run, name).tables.get(table)

    def tile(self, name: str) -> dict[str, str]:
        """Value of a tile by the page that shows it."""
        return {page: tiles[name] for page, tiles in self.tiles.items() if name in tiles}

    def breakdown(self) -> pd.DataFrame | None:
        """The breakdown of the profiled steps, else of the capture."""
        stepped = self.table("gpu_breakdown", "profiled_steps")
        return self.table("gpu_breakdown", "whole") if stepped is None else stepped


WINDOWS = ("profiled step", "unprofiled step", "capture")


def named(note: str) -> bool:
    """Whether a note names the window of its number."""
    return any(window in note for window in WINDOWS)


def text(part: Any) -> str:
    """All text of a component."""
    if isinstance(part, list | tuple):
        return "".join(map(text, part))
    return text(part.children) if hasattr(part, "children") else "" if part is None else str(part)


def printed(shown: Shown, *words: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    out = StringIO()
    with redirect_stdout(out):
        assert main.run([*words, "--store", str(shown.store.path), "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def ranged(values: pd.Series, unit: str) -> str:
    """A range as tiles show it."""
    from tracekit.dashboards.components.charts import make_tiles

    return make_tiles(values.dropna(), label="", unit=unit)[0].text


Places = dict[str, Any]


def unprofiled_step(shown: Shown) -> Places:
    """Median of the steps timed without the profiler."""
    listed = next(one for one in printed(shown, "runs")["runs"] if one["run_id"] == shown.run.id)[
        "unprofiled_step_ns"
    ]
    found: Places = {"tracekit runs": human(listed, "ns"), "Runs": shown.row["unprofiled_text"]}
    overhead = shown.table("steps", "overhead")
    if overhead is not None:
        found["steps.overhead"] = human(int(overhead["unprofiled_ns"].iloc[0]), "ns")
    sweep = [read_quantity(point, "step_time", shown.results.of) for point in read_points([shown.run])]
    if sweep and sweep[0] is not None:
        found["Sweeps"] = human(sweep[0], "ns")
    return found | shown.tile("Unprofiled step")


def profiled_step(shown: Shown) -> Places:
    """Median of the profiled steps."""
    if not shown.run.rows("steps"):
        return {}
    found: Places = {"Runs": shown.row["step_text"], **shown.tile("Profiled step")}
    if shown.row["unprofiled"] is None:
        metrics = printed(shown, "diff", shown.run.id, shown.run.id)["metrics"]
        found["Compare"] = human(next(one["a"] for one in metrics if one["name"] == "step_time"), "ns")
    return found


def steps(shown: Shown) -> Places:
    """Profiled steps without warm-up outliers."""
    summary = shown.table("steps", "summary")
    if summary is None or summary[C.RANK].nunique() > 1:
        return {}
    return {"Runs": shown.row["steps"], "steps.summary": int(summary["steps"].max())}


def share(shown: Shown, tile: str, column: str, *bounds: Bottleneck) -> Places:
    """A share of `gpu_breakdown` and the parts of the verdict that it consists of."""
    evidence, verdict = Evidence(), shown.advice.verdict
    for name in ("gpu_breakdown", "idle_gaps"):
        evidence.add(name, shown.results.of(shown.run, name))
    measured = evidence.measured_window()
    if measured is None:
        return {}
    frame = measured[0]
    found = {"gpu_breakdown": ranged(frame[column], "share"), **shown.tile(tile)}
    assert verdict is not None
    if len(frame) == 1 and verdict.window_ns == int(frame["window_ns"].iloc[0]):
        found["verdict"] = human(sum(verdict.share(one) for one in bounds), "share")
    return found


def active_share(shown: Shown) -> Places:
    """Time in which a kernel runs."""
    return share(
        shown,
        "GPU active",
        "active_share",
        Bottleneck.COMPUTE,
        Bottleneck.COMMUNICATION,
        Bottleneck.STRAGGLERS,
    )


def movement_share(shown: Shown) -> Places:
    """Exposed copies."""
    return share(shown, "Data movement", "movement_share", Bottleneck.COPIES)


IDLE = (
    *(
        Bottleneck.LAUNCH,
        Bottleneck.HOST,
        Bottleneck.START_UP,
        Bottleneck.QUEUED,
        Bottleneck.INPUT,
        Bottleneck.SYNC,
        Bottleneck.PROFILER,
        Bottleneck.UNKNOWN,
        Bottleneck.EDGES,
    ),
)


def idle_share(shown: Shown) -> Places:
    """Time in which nothing runs; on the Overview, the page that it links to, and in the verdict."""
    found = share(shown, "GPU idle", "idle_share", *IDLE)
    assert not found or {"overview", "idle_gaps"} <= set(found)
    return found


def kernels(shown: Shown) -> Places:
    """Kernels of the capture."""
    whole, listed = shown.table("gpu_breakdown", "whole"), shown.table("kernels", "names")
    if whole is None or listed is None:
        return {}
    return {"gpu_breakdown": int(whole["kernels"].sum()), "kernels": int(listed["count"].sum())}


def kernel_time(shown: Shown) -> Places:
    """Σ of the kernels' durations in the capture."""
    whole, listed = shown.table("gpu_breakdown", "whole"), shown.table("kernels", "names")
    if whole is None or listed is None:
        return {}
    return {"gpu_breakdown": int(whole["kernel_sum_ns"].sum()), "kernels": int(listed["sum_ns"].sum())}


def h2d_bytes(shown: Shown) -> Places:
    """Bytes copied to devices in the capture."""
    overlap = shown.table("overlap", "whole")
    if overlap is None or not (overlap["what"] == "H2D").any():
        return {}
    own = overlap[overlap["what"] == "H2D"][C.BYTES]
    copied = shown.run.table("device_intervals", columns=[C.COPY_KIND, C.BYTES])
    total = int(copied.loc[copied[C.COPY_KIND] == "H2D", C.BYTES].sum())
    found: Places = {"overlap": int(own.sum()), "run": total}
    return (
        found
        if len(own) > 1
        else {name: human(one, "bytes") for name, one in found.items()} | shown.tile("Host to device")
    )


def peak_memory(shown: Shown) -> Places:
    """Peak of the memory allocated on a device."""
    summary = shown.table("memory", "summary")
    if summary is None or (summary[C.DEVICE] < 0).all():
        return {}
    own = summary.loc[summary[C.DEVICE] >= 0, "peak_allocated"]
    return {"memory": ranged(own, "bytes"), **shown.tile("Peak memory")}


def exposed_communication(shown: Shown) -> Places:
    """Communication without another kernel, over all devices."""
    frame, ranks, verdict = shown.breakdown(), shown.table("ranks", "per_rank"), shown.advice.verdict
    if frame is None or ranks is None or verdict is None:
        return {}
    parts = [one for one in verdict.parts if one.bound in {Bottleneck.COMMUNICATION, Bottleneck.STRAGGLERS}]
    return {
        "gpu_breakdown": int(frame["communication_exposed_ns"].sum()),
        "ranks": int(ranks["communication_exposed_ns"].sum()),
        "verdict": sum(one.dur_ns for one in parts),
    }


def top_idle_cause(shown: Shown) -> Places:
    """Cause of most idle time, by its label."""
    table, verdict = shown.table("idle_gaps", "by_cause"), shown.advice.verdict
    if table is None or verdict is None or len(table[[C.RANK, C.DEVICE]].drop_duplicates()) > 1:
        return {}
    content = blocks.compute_block(
        shown.site, View(page="idle_gaps", run=shown.run.path.name), "causes", dark=False
    )
    (figure,) = [one.figure for part in content for one in part._traverse() if isinstance(one, Chart)]
    longest = max(figure["data"], key=lambda bar: max(bar["x"], default=0))
    if table["start_up_ns"].any():
        return {}  # which the verdict has as a part of its own
    table = table[table["aside_ns"] == 0]
    parts = [one for one in verdict.parts if one.bound in IDLE and one.bound != Bottleneck.EDGES]
    column = "idle_ns" if table["steps_ns"].isna().any() else "steps_ns"
    if not parts or not table[column].max():
        return {}
    return {
        "idle_gaps": label(str(table.sort_values(column)["cause"].iloc[-1])),
        "Idle gaps": longest["name"],
        "verdict": max(parts, key=lambda part: part.dur_ns).label,
    }


QUANTITIES: tuple[Callable[[Shown], Places], ...] = (
    *(unprofiled_step, profiled_step, steps, active_share, movement_share, idle_share),
    *(kernels, kernel_time, h2d_bytes, peak_memory, exposed_communication, top_idle_cause),
)


@pytest.fixture(scope="module", params=map(_marked, RECORDED))
def shown(
    request: pytest.FixtureRequest,
    shared_runs: SharedRuns,
    analyzed_store: Store,
    tmp_path_factory: pytest.TempPathFactory,
) -> Shown:
    path: Path = request.param
    store = tmp_path_factory.mktemp("one_number") / "store"
    if path == TRAINING:
        shutil.copytree(analyzed_store.path, store)
        (copied,) = Store(store).runs()
        return Shown(copied)
    run = shared_runs.of(path)
    origin = path.parent / "provenance.json"
    timed = json.loads(origin.read_text()).get("step_ns_without_profiler") if origin.exists() else None
    timings = Timings(step_ns=timed, warmup_ns=[], clock="perf_counter") if timed else None
    return Shown(copy_of(run, store / run.path.name, timings=timings))


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda one: one.__name__)
def test_a_quantity_is_the_same_everywhere(shown: Shown, quantity: Callable[[Shown], Places]) -> None:
    found = shown.places(quantity)
    assert len(set(map(str, found.values()))) <= 1, found


def test_most_quantities_are_compared(shown: Shown) -> None:
    """Guards the test above against comparing nothing."""
    compared = [one.__name__ for one in QUANTITIES if len(shown.places(one)) > 1]
    assert len(compared) >= (2 if shown.breakdown() is None else 6), compared
