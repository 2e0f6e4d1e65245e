"""The page of steps of inference servers: figures, and links of slow steps to the timeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from plotly.utils import PlotlyJSONEncoder
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.site import Context, Results, View

from samples.simulator.planted import serving as planted
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

BATCHES = planted.schedule(400)
SLOW = {70, 200, 333}


def shown(run: Run, block: str, **view: Any) -> str:
    selected = View(page="serving", run=run.path.name, **view)
    context = Context(view=selected, dark=False, store=Store(run.path.parent), results=Results(), chosen=run)
    made = load_pages()["serving"].blocks[block](context)
    return json.dumps(made, cls=PlotlyJSONEncoder, ensure_ascii=False)


@pytest.fixture(scope="module")
def run(shared_runs: SharedRuns) -> Run:
    return shared_runs.simulated(planted.server(BATCHES, slow=SLOW))


def test_slow_steps_link_to_the_timeline(run: Run) -> None:
    figures = shown(run, "figures")
    assert "3 steps take over 20% longer" in figures
    steps = run.table("steps").set_index("step")
    for number in SLOW:
        assert f"step {number} (" in figures
        assert str(int(steps["start_ns"][number])) in figures


def test_the_answer_names_every_phase_and_the_host_between(run: Run) -> None:
    answer = shown(run, "answer")
    assert all(f"{phase}: " in answer for phase in ("Prefill", "Decode", "Mixed"))
    assert "Between the steps the host takes " in answer


def test_a_single_step_has_no_scatter(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(planted.server(BATCHES[:1], planted.vllm))
    assert "Step time by tokens" not in shown(run, "figures")
    assert "Prefill: 1 step, " in shown(run, "answer")


def test_equal_steps_are_one_point(run: Run) -> None:
    assert " like it: " in shown(run, "figures")
