"""Suite page and cells of sweeps, from records on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.blocks import compute_block
from tracekit.dashboards.site import Site, View

from tests.runs import make_run
from tests.unit.experiments.sweep.made import bad, cell, ok, plan
from tests.unit.experiments.tried.test_trial_log import advice, outcomes
from tracekit.experiments import sweep_folder
from tracekit.experiments.suite import plan as suite_plan
from tracekit.experiments.sweep_model import Outcome
from tracekit.experiments.trial_log import log_outcomes

if TYPE_CHECKING:
    from tracekit.runs.store import Store


def shown(store: Store, page: str, block: str, **options: str) -> str:
    site = Site(app=create_app(store), store=store, pages=load_pages())
    reported = compute_block(site, View(page=page, options=options), block, dark=False)
    text = json.dumps(reported, default=lambda one: one.to_plotly_json())
    assert '"picture": ""' not in text  # every chart is also drawn without scripts
    return text


def test_a_sweep_shows_its_cells_with_those_that_failed(store: Store) -> None:
    fits, large = cell(batch_size=8), cell(batch_size=16)
    run = make_run(store)
    place = sweep_folder.begin(store, plan(fits, large))
    place.add(ok(fits, 1_500_000, run_id=run.id))
    place.add(bad(large, Outcome.OUT_OF_MEMORY, "it asked for too much"))
    reported = shown(store, "sweeps", "cells")
    assert "out of memory" in reported
    assert "it asked for too much" in reported
    assert "1.50 ms" in reported
    assert f"/overview?run={run.id}" in reported
    assert place.id in reported


def test_another_sweep_can_be_chosen(store: Store) -> None:
    first = sweep_folder.begin(store, plan(cell(batch_size=8)))
    second = sweep_folder.begin(store, plan(cell(batch_size=16)))
    assert f"Cells of {first.id}" in shown(store, "sweeps", "cells", cells=first.id)
    assert f"Cells of {second.id}" in shown(store, "sweeps", "cells", cells=second.id)


def test_without_a_sweep_there_are_no_cells(store: Store) -> None:
    assert shown(store, "sweeps", "cells") == "[]"


def test_a_suite_shows_its_tables_and_why_values_are_missing(store: Store) -> None:
    wanted = suite_plan(only=["sac"])
    place = sweep_folder.begin(store, wanted)
    for one in wanted.cells:
        place.add(ok(one, 1_500_000))
    reported = shown(store, "suite", "report")
    assert "no GPU" in reported
    assert "Speedups of single changes" in reported
    assert "84.8%" in reported  # published idle time of reinforcement learning
    assert place.id in reported


def test_trials_show_effects_and_code(store: Store) -> None:
    run, changed = make_run(store), make_run(store, after_s=1)
    faster, slower = outcomes(foreach=0.8, num_workers=1.2)
    tried = [replace(faster, run=changed.id), replace(slower, run="removed")]
    log_outcomes(store, run, tried, advice("small_optimizer_kernels"))
    reported = shown(store, "trials", "report")
    assert reported.count("compare runs") == 1
    link = reported[reported.index("/compare?") :].split()[0]
    assert f"run={changed.id}" in link
    assert f"base={run.id}" in link
    assert "helps" in reported
    assert "torch.optim.AdamW(parameters, foreach=True)" in reported
    assert f"/overview?run={run.id}" in reported
    assert reported.index("foreach") < reported.index("num_workers")


def test_without_trials_the_page_says_how_to_measure(store: Store) -> None:
    assert "tracekit try -- python train.py" in shown(store, "trials", "report")


def test_without_a_suite_the_page_says_how_to_make_one(store: Store) -> None:
    assert "tracekit suite run" in shown(store, "suite", "report")
