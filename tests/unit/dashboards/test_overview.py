"""Overview and related pages: their numbers equal those of the analyses."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.dashboards import blocks
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.components import charts
from tracekit.dashboards.components.charts import Chart, Tile
from tracekit.dashboards.components.finding import range_around, read_evidence, show_finding
from tracekit.dashboards.components.text import with_code
from tracekit.dashboards.pages import key_numbers, overview
from tracekit.dashboards.pages.overview.findings import find_job
from tracekit.dashboards.site import Site, View

from tests.builders import host, kernel, make_run, memcpy, step
from tests.environment import HANG_SECONDS
from tracekit import analysis
from tracekit.analysis import Basis, Bottleneck, Finding, Severity
from tracekit.analysis.findings import advise
from tracekit.analysis.verdict import judge
from tracekit.render import human
from tracekit.runs.meta import Diagnostic, Git, Level, Timings
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.dashboards.site import Context

    from tracekit.runs.run import Run

MS = 1_000_000
HOSTILE = "<script>alert(1)</script>"


def rows(ranks: int = 1) -> dict[str, list[dict[str, Any]]]:
    steps, device, calls = [], [], []
    for rank in range(ranks):
        for number in range(4):
            start = number * 10 * MS
            more = {"rank": rank, "device": rank, "step": number, "correlation_id": number + 1}
            steps.append(step(number, start, start + 8 * MS, rank=rank))
            device.append(kernel(start + MS, start + 5 * MS, name=HOSTILE, **more))
            device.append(memcpy(start + 5 * MS, start + 6 * MS, bytes=4096, copy_kind="H2D", **more))
            calls.append(host("aten::mm", start, start + MS, rank=rank, step=number))
    return {"steps": steps, "device_intervals": device, "host_intervals": calls}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


_sites: dict[Path, Site] = {}


def site_of(store: Store) -> Site:
    """The site of a store, which keeps what it has computed."""
    if store.path not in _sites:
        _sites[store.path] = Site(app=create_app(store), store=store, pages=load_pages())
    return _sites[store.path]


def context_of(store: Store, **view: Any) -> Context:
    return site_of(store).context(View(page="overview", **view), dark=False)


def text_of(component: Any) -> str:
    return json.dumps(component, default=lambda one: one.to_plotly_json(), ensure_ascii=False)


def filled(store: Store, page: str, name: str, **view: Any) -> str:
    return text_of(blocks.compute_block(site_of(store), View(page=page, **view), name, dark=False))


def figures_of(content: Any) -> list[Any]:
    parts = content if isinstance(content, list) else [content]
    found = [one for part in parts for one in (part, *part._traverse())]
    return [one.figure for one in found if isinstance(one, Chart)]


def every_block(store: Store, page: str, **view: Any) -> str:
    site = site_of(store)
    looked_at = View(page=page, **view)
    return "".join(
        text_of(blocks.compute_block(site, looked_at, name, dark=False)) for name in site.pages[page].blocks
    )


PAGES = ("overview", "idle_gaps", "steps", "zero_grad")


@pytest.mark.slow_except("2-overview", "1-zero_grad")
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_block_of_a_page_is_filled(store: Store, page: str, ranks: int) -> None:
    make_run(store.path, **rows(ranks))
    assert "this section failed" not in every_block(store, page)


@pytest.mark.slow_except("overview")
@pytest.mark.parametrize("page", PAGES)
def test_a_run_without_devices_is_told_of_in_words(store: Store, page: str) -> None:
    make_run(store.path, host_intervals=rows()["host_intervals"])
    shown = every_block(store, page)
    assert "this section failed" not in shown
    assert "aten::mm" in shown or "tk-note" in shown


@pytest.mark.slow_except("overview")
@pytest.mark.parametrize("page", PAGES)
def test_an_empty_run_fails_nowhere(store: Store, page: str) -> None:
    make_run(store.path, steps=[step(0, 0, 1)])
    assert "this section failed" not in every_block(store, page)


@pytest.mark.slow_except("overview")
@pytest.mark.parametrize("page", PAGES)
def test_names_of_a_trace_never_become_markup(store: Store, page: str) -> None:
    make_run(store.path, **rows())
    site = site_of(store)
    for name in site.pages[page].blocks:
        content = blocks.compute_block(site, View(page=page), name, dark=False)
        for figure in figures_of(content):
            assert "<script" not in json.dumps(figure)


def test_tiles_show_what_the_analyses_say(store: Store) -> None:
    run = make_run(store.path, **rows())
    shown = filled(store, "overview", "device_tiles")
    verdict = judge(run)
    assert human(verdict.share(Bottleneck.COMPUTE), "share") in shown
    assert f"of {verdict.window}: a kernel runs" in shown
    own = analysis.analyze(run, "steps").tables["summary"].set_index("measure").loc[key_numbers.OWN]
    assert human(int(own["median_ns"]), "ns") in shown


def test_the_window_of_idle_gaps_is_said_once(store: Store) -> None:
    make_run(store.path, **rows())
    assert "Tables: the capture." in filled(store, "idle_gaps", "window")
    meta = {"run_id": "20261121T000001Z-head-000000"}
    make_run(store.path, meta=meta, device_intervals=[kernel(0, MS)])
    assert "All numbers: the capture." in filled(store, "idle_gaps", "window")


def test_a_chosen_rank_narrows_what_is_shown(store: Store) -> None:
    make_run(store.path, **rows(2))
    assert "profiled steps; median of the means of 2 ranks" in filled(store, "overview", "device_tiles")
    assert "means of 2 ranks" not in filled(store, "overview", "device_tiles", rank=1)


def test_the_baselines_value_and_the_change_are_shown(store: Store) -> None:
    base = make_run(store.path, meta={"run_id": "20261121T000000Z-base-000000"}, **rows())
    slower = rows()
    slower["device_intervals"] = [
        one | {"dur_ns": one["dur_ns"] + MS // 2} for one in slower["device_intervals"]
    ]
    head = make_run(store.path, meta={"run_id": "20261121T000001Z-head-000000"}, **slower)
    for page, name in (("overview", "device_tiles"), ("steps", "numbers"), ("idle_gaps", "numbers")):
        assert "vs. " in filled(store, page, name, run=head.path.name, base=base.path.name)
        assert "vs. " not in filled(store, page, name, run=head.path.name)


def test_without_a_comparable_baseline_no_change_is_shown(store: Store) -> None:
    gpus = [{"gpu": name, "device": "cuda"} for name in ("A100", "H100")]
    base, head = (
        make_run(store.path, meta={"run_id": f"20261121T00000{at}Z-one-000000", "fingerprint": gpu}, **rows())
        for at, gpu in enumerate(gpus)
    )
    view = {"run": head.path.name, "base": base.path.name}
    assert "not directly comparable" in filled(store, "overview", "baseline", **view)
    assert "vs. " not in filled(store, "overview", "device_tiles", **view)


def test_overhead_is_shown_where_it_was_measured(store: Store) -> None:
    timings = Timings(step_ns=[7 * MS] * 5, warmup_ns=[], clock="perf_counter")
    make_run(store.path, meta={"timings": timings}, **rows())
    shown = filled(store, "overview", "device_tiles")
    assert "Unprofiled step" in shown
    assert "7.00 ms" in shown


@pytest.mark.parametrize("has_device", [True, False])
def test_busy_devices_are_explained_where_there_are_any(store: Store, has_device: bool) -> None:
    make_run(store.path, **rows() | ({} if has_device else {"device_intervals": []}))
    shown = filled(store, "steps", "times")
    assert ("On the host" in shown, "Device busy" in shown) == (True, has_device)


def test_a_failed_check_is_named(store: Store) -> None:
    bad = Diagnostic(Level.WARN, "lost_events", f"3 events were lost {HOSTILE}")
    run = make_run(store.path, meta={"diagnostics": [bad]}, **rows())
    shown = filled(store, "overview", "integrity")
    assert "Usable with care" in shown or "Not usable" in shown
    assert "lost events" in shown
    levels = analysis.analyze(run, "integrity").tables["checks"]["level"].tolist()
    judged = len(levels) - levels.count("info")  # what informs neither passes nor fails
    assert f"{levels.count('ok')} of {judged} checks passed" in shown
    assert "info" in levels


@pytest.mark.slow
def test_the_findings_are_those_of_the_command(store: Store) -> None:
    run = make_run(store.path, **rows())
    context = context_of(store)
    job = find_job(context)
    assert job.finished.wait(HANG_SECONDS)
    assert job.advice is not None
    assert job.advice.findings == advise(run).findings
    assert find_job(context) is job


def test_what_a_run_lacks_for_an_analysis_is_listed(store: Store) -> None:
    make_run(store.path, host_intervals=[host("aten::mm", 0, MS)])
    assert find_job(context_of(store)).finished.wait(HANG_SECONDS)
    shown = filled(store, "overview", "findings")
    (skipped,) = re.findall(r"Skipped: (\d+) analyses are missing data", shown)
    assert int(skipped) > 1


def test_advice_that_breaks_says_why(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(store.path, **rows())

    def broken(*_: object) -> None:
        raise ValueError("no budget")

    monkeypatch.setattr("tracekit.dashboards.pages.overview.findings.gather", broken)
    job = find_job(context_of(store))
    assert job.finished.wait(HANG_SECONDS)
    assert job.error == "ValueError: no budget"


def one_finding(**more: Any) -> Finding:
    return Finding(
        code="code",
        severity=Severity.HIGH,
        title=f"idle {HOSTILE}",
        advice="set `a=1`",
        **more,
    )


def test_a_finding_leads_to_its_evidence(store: Store) -> None:
    make_run(store.path, **rows())
    one = one_finding(saving_ns_per_step=MS, basis=Basis.MEASURED, evidence={"device_intervals": [2, 0]})
    shown = text_of(show_finding(context_of(store), one, share=0.25))
    start, end = range_around(11 * MS, 4 * MS)
    assert (start, end) == (3 * MS, 23 * MS)
    assert f"/timeline?run=20261121T000000Z-made-by-hand-000000&from={start}&to={end}" in shown
    assert "row=device_intervals:2" in shown
    assert "saves 1.00 ms" in shown
    assert "25.0% of the step" in shown


@pytest.mark.parametrize(("chosen", "kept"), [(0, "rank=0&device=0"), (1, "")])
def test_a_choice_that_hides_the_evidence_is_left_behind(store: Store, chosen: int, kept: str) -> None:
    run: Run = make_run(store.path, **rows())
    spot = read_evidence(run, [one_finding(evidence={"device_intervals": [2]})])["device_intervals", 2]
    address = spot.href(View(run="r", rank=chosen, device=chosen))
    assert address.startswith(f"/timeline?run=r&{kept}".rstrip("&") + "&from=")


def test_evidence_that_is_not_there_is_left_out(store: Store) -> None:
    run: Run = make_run(store.path, **rows())
    assert read_evidence(run, [one_finding(evidence={"device_intervals": [99_999], "passwords": [1]})]) == {}
    assert "timeline" not in text_of(show_finding(context_of(store), one_finding()))


def test_an_odd_backtick_opens_nothing() -> None:
    assert with_code("a ` b") == ["a ` b"]


def test_changes_are_told_in_words() -> None:
    def tile(value: float, unit: str = "ns", wanted: str = "low") -> Tile:
        return Tile(label="x", low=value, high=value, unit=unit, wanted=wanted)

    assert charts.describe_change(tile(110), tile(100)) == ("+10.0%", "worse")
    assert charts.describe_change(tile(90), tile(100)) == ("−10.0%", "better")
    assert charts.describe_change(tile(0.6, "share", "high"), tile(0.5, "share", "high")) == (
        "+10.0 points",
        "better",
    )
    assert charts.describe_change(tile(100), tile(100)) == ("no change", "")
    assert charts.describe_change(tile(100), tile(0)) == ("", "")
    assert charts.describe_change(tile(110, "ns", ""), tile(100)) == ("+10.0%", "")


def test_tiles_of_nothing_are_none() -> None:
    assert charts.make_tiles([], label="x", unit="ns") == []


def test_what_ran_says_what_is_known(store: Store) -> None:
    git = Git("0123456789abcdef", "tree", "main", True, None, "")
    meta = make_run(
        store.path,
        meta={"git": git, "command": ["python", HOSTILE], "workload": {"name": "mnist", "batch_size": 64}},
        **rows(),
    ).meta
    known = dict(overview.list_facts(meta))
    assert known["Commit"] == "0123456789 on main, with uncommitted changes"
    assert known["Workload"] == "mnist, batch size 64"
    assert "GPU" not in known
    assert HOSTILE in known["Command"]


def test_settings_of_the_program_are_listed(store: Store) -> None:
    program = {"threads": {"intra_op": 2}, "modes": {"grad": True}, "script": HOSTILE}
    plain, recorded = (
        make_run(store.path / name, meta={"environment": environment}, **rows())
        for name, environment in (("plain", {}), ("recorded", {"program": program}))
    )
    assert overview.list_settings(recorded.meta) == [
        ("threads.intra_op", "2"),
        ("modes.grad", "yes"),
        ("script", HOSTILE),
    ]
    for run, is_shown in ((plain, False), (recorded, True)):
        shown = overview.PAGE.blocks["ran"](SimpleNamespace(run=run))
        assert ("Settings of the program" in text_of(shown)) == is_shown
        assert ("threads.intra_op" in text_of(shown)) == is_shown
