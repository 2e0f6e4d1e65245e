from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import kernel, step
from tests.runs import make_run, step_rows
from tests.unit.dashboards.run_rows import make_rows
from tracekit.analysis.cache import ResultCache
from tracekit.errors import UnusableInputError
from tracekit.runs.meta import Collector, Diagnostic, Git, Level

pytest.importorskip("dash")

from dash import Dash, html
from tracekit.dashboards import blocks, shell, shortcuts
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.catalog import Catalog
from tracekit.dashboards.pages import runs as runs_page
from tracekit.dashboards.pages.runs.dialogs import delete_runs
from tracekit.dashboards.pages.runs.rows import StepTimes, columns
from tracekit.dashboards.site import Site, View

from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

GIT = Git("a" * 40, "b" * 40, "main", dirty=True, diff_sha256=None, commit_time="2026-11-21T00:00:00Z")


@pytest.fixture
def site(store: Store) -> Site:
    return Site(app=Dash(), store=store, pages=load_pages())


def text(component: Any) -> str:
    """A component as it travels to the browser."""
    if isinstance(component, list):
        return "".join(map(text, component))
    return json.dumps(component.to_plotly_json(), default=lambda one: one.to_plotly_json())


def test_a_run_is_read_once_and_again_when_it_was_written_again(store: Store) -> None:
    make_run(store)
    catalogue = Catalog(store)
    first = catalogue.list_runs()
    assert catalogue.list_runs().runs[0] is first.runs[0]
    second = make_run(store, after_s=1)
    later = catalogue.list_runs()
    assert (later.stamp != first.stamp, later.find(second.path.name)) == (True, later.runs[1])


def test_an_unreadable_run_is_named_with_what_to_do(store: Store) -> None:
    good, bad = make_run(store), make_run(store, after_s=1)
    (bad.path / "run.json").write_text('{"schema_version": 99}')
    listing = Catalog(store).list_runs()
    assert [run.path.name for run in listing.runs] == [good.path.name]
    (left_out,) = listing.unreadable
    assert (left_out.name, left_out.hint) == (bad.path.name, "upgrade tracekit")
    assert bad.path.name in text(runs_page.list_properties(listing, [])[2])


def test_a_run_that_ceases_to_be_json_hides_nothing(store: Store) -> None:
    make_run(store)
    (make_run(store, after_s=1).path / "run.json").write_text("{")
    assert len(Catalog(store).list_runs().runs) == 1


def test_one_run_without_ranks_offers_nothing_but_itself(site: Site) -> None:
    make_run(site.store)
    hidden = [one.hidden for one in shell.picker_states(site, site.context(View(), dark=False))]
    assert hidden == [False, True, True, True, True]


def test_peaks_are_offered_on_pages_that_use_them_and_while_some_are_chosen(site: Site) -> None:
    make_run(site.store)

    def offered(view: View) -> shell.PickerState:
        return shell.picker_states(site, site.context(view, dark=False))[-1]

    shown = offered(View(page="roofline"))
    assert (shown.hidden, shown.value, shown.title) == (False, None, "")
    assert {"value": "H100 SXM", "label": "H100 SXM"} in shown.options
    assert offered(View(page="steps")).hidden
    chosen = offered(View(page="steps", peaks="h100 sxm"))
    assert (chosen.hidden, chosen.value) == (False, "H100 SXM")
    unlisted = offered(View(page="roofline", peaks="H1000"))
    assert unlisted.options[0] == {"value": "H1000", "label": "H1000 (not listed)"}


def test_two_ranks_and_devices_are_offered(site: Site) -> None:
    from tests.builders import make_run as built

    rows_ = [kernel(0, 1, rank=rank, device=rank) for rank in (0, 1)]
    built(site.store.path, device_intervals=rows_)
    _, _, rank, device, _ = shell.picker_states(site, site.context(View(rank=1), dark=False))
    assert ([one["value"] for one in rank.options], rank.value) == (["", "0", "1"], "1")
    assert (device.hidden, device.value) == (False, "")


def test_a_run_is_never_its_own_baseline(site: Site) -> None:
    first, second = make_run(site.store), make_run(site.store, after_s=1)
    run, base, _, _, _ = shell.picker_states(site, site.context(View(), dark=False))
    assert [one["value"] for one in run.options] == [second.path.name, first.path.name]
    assert [one["value"] for one in base.options] == [first.path.name]


def test_another_run_forgets_what_was_chosen_of_the_first() -> None:
    before = View(page="kernels", run="a", base="b", rank=1, start_ns=5, row="device_intervals:1", peaks="L4")
    assert shell.view_after_choice(before, "c", "b", 1, None) == View(page="kernels", run="c", base="b")
    assert shell.view_after_choice(before, "b", "b", 1, None).base == ""
    assert shell.view_after_choice(before, "a", "", 0, None) == View(
        page="kernels", run="a", rank=0, start_ns=5, row="device_intervals:1"
    )


def test_the_menu_marks_where_one_is(site: Site) -> None:
    make_run(site.store)
    shown = text(shell.menu(site, site.context(View(page="kernels"), dark=False)))
    assert shown.count('"aria-current": "page"') == 1
    assert '"data-key": "r"' in shown


def test_pages_without_data_in_the_run_come_last_and_unfold_there(site: Site) -> None:
    from tests.builders import make_run as built

    def entries(run: Run, page: str) -> tuple[str, str, bool]:
        """What the menu has before its folded part, in it, and whether that is open."""
        *before, last = shell.menu(site, site.context(View(page=page, run=run.path.name), dark=False))
        assert isinstance(last, html.Details)
        return text(before), text(last), last.open

    empty, on_gpu = make_run(site.store), built(site.store.path, device_intervals=[kernel(0, 1)])
    before, folded, is_open = entries(empty, "runs")
    assert "Kernels" not in before
    assert not is_open
    assert all(title in folded for title in ("Kernels", "Idle gaps", "Memory", "Serving"))
    assert "Operators" in before  # whatever was recorded
    assert entries(empty, "kernels")[2]
    before, folded, _ = entries(on_gpu, "runs")
    assert all(title in before for title in ("Kernels", "Graphs", "Compare"))
    assert all(title in folded for title in ("Memory", "Sweeps", "Suite", "Trials", "History"))
    # once a result is known, it tells, and says what to record
    cache = ResultCache(site.store)
    cache.analyze(on_gpu, "graphs")
    cache.analyze(on_gpu, "kernels")
    site.results.read_notes = cache.read_notes
    before, folded, _ = entries(on_gpu, "runs")
    assert "Kernels" in before
    assert "Graphs" not in before
    assert 'title": "No CUDA or HIP graph was launched in this capture' in folded


def test_a_table_that_cannot_be_read_leaves_its_pages_in_the_menu(site: Site) -> None:
    from tests.builders import make_run as built

    run = built(site.store.path, steps=[step(0, 0, 10)])
    (run.path / "steps.parquet").write_bytes(b"PAR1")
    *before, _ = shell.menu(site, site.context(View(page="runs", run=run.path.name), dark=False))
    assert "Serving" in text(before)


def test_every_key_opens_one_page() -> None:
    keys = shortcuts.assign_keys(load_pages())
    assert len(set(keys.values())) == len(keys)
    assert "g" not in keys.values()
    assert {"runs", "overview", "help"} <= set(keys)


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (View(page="nothing"), "Page not found"),
        (View(page="kernels", run="gone"), "has no readable run gone"),
        (View(page="kernels"), "has no runs yet"),
    ],
)
def test_what_cannot_be_shown_says_so_and_leads_back(site: Site, view: View, said: str) -> None:
    shown = text(shell.page_layout(site, site.context(view, dark=False)))
    assert said in shown
    assert '"href": "/"' in shown


def test_a_block_that_fails_can_be_tried_again(site: Site) -> None:
    shown = text(blocks.compute_block(site, View(page="gpu_breakdown"), "result", dark=False))
    assert "no run selected" in shown
    assert '"type": "retry"' in shown


def test_a_run_that_is_gone_is_named_where_it_was_shown(site: Site) -> None:
    shown = text(blocks.compute_block(site, View(page="gpu_breakdown", run="gone"), "result", dark=False))
    assert "the store has no readable run gone" in shown


def test_rows_say_what_is_known_of_a_run(store: Store) -> None:
    make_run(
        store,
        tables={"steps": step_rows(0, 20, 40)},
        label="base\x1bline",
        workload={"name": "resnet50", "mode": "train", "device": "cuda"},
        environment={"gpus": [{"name": "A100"}, {"name": "A100"}]},
        git=GIT,
        diagnostics=[Diagnostic(Level.WARN, "c", "one"), Diagnostic(Level.INFO, "d", "two")],
    )
    listing, times = Catalog(store).list_runs(), StepTimes()
    assert make_rows(listing.runs, times)[0]["step_text"] == "…"
    assert times.work(listing.runs)
    (row,) = make_rows(listing.runs, times)
    assert (row["label"], row["workload"], row["gpu"]) == ("base\\x1bline", "resnet50", "2 × A100")
    assert (row["commit"], row["diagnostics"]) == ("aaaaaaaaa+", "1 warning, 1 info message")
    assert (row["step"], row["step_text"], row["steps"], row["messages"]) == (10, "10 ns", 3, "one\ntwo")
    assert not times.work(listing.runs)


def test_an_import_says_its_files(store: Store) -> None:
    sources = [{"name": "rank0.json", "bytes": 2}, {"name": "rank1.json", "bytes": 3}]
    make_run(store, tables={"counters": []}, collector=Collector("import", "1", {"sources": sources}))
    (row,) = make_rows(Catalog(store).list_runs().runs, StepTimes())
    assert (row["workload"], row["source_bytes"]) == ("rank0.json and 1 more", 5)
    assert (row["step_text"], row["commit"]) == ("–", None)


def test_columns_that_no_run_fills_are_not_shown(store: Store) -> None:
    make_run(store)
    shown = [one["field"] for one in columns(make_rows(Catalog(store).list_runs().runs, StepTimes()))]
    assert shown == ["run", "step", "steps", "created", "size", "source"]


def test_the_older_of_two_is_the_baseline() -> None:
    link = text(runs_page._compare_link(View(), ["old", "new"]))
    assert '"/compare?run=new&base=old"' in link
    assert '"disabled": true' in text(runs_page._compare_link(View(), ["one"]))
    several = text(runs_page._compare_link(View(), ["old", "mid", "late", "new"]))
    assert '"/compare?run=new&base=old&runs=mid%2Clate"' in several
    assert '"disabled": true' in text(runs_page._compare_link(View(), [*"123456789"]))


def test_runs_are_deleted_by_name_only_from_the_store(site: Site, tmp_path: Path) -> None:
    run = make_run(site.store)
    outside = make_run(Store(tmp_path / "other"), after_s=1)
    (site.store.path / outside.path.name).symlink_to(outside.path)
    delete_runs(site, ["../other", "gone", run.path.name])
    with pytest.raises(UnusableInputError, match="not in the store"):
        delete_runs(site, [outside.path.name])
    assert outside.path.is_dir()
    assert not run.path.exists()
