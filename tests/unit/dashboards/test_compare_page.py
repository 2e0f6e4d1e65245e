"""Compare page: its numbers equal those of `tracekit diff`."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.blocks import compute_block
from tracekit.dashboards.components.several_runs import field_name
from tracekit.dashboards.components.text import format_change
from tracekit.dashboards.exports.downloads import quote_formula
from tracekit.dashboards.figures import shares
from tracekit.dashboards.pages.compare import describe_differences, describe_doubts, selection
from tracekit.dashboards.pages.compare.breakdowns import show_step_ranges
from tracekit.dashboards.site import Site, View

from tests.unit.dashboards.pairs import BASE, HEAD, OTHER, pair_store
from tracekit.diff import Options, diff
from tracekit.diff.engine import FIELDS
from tracekit.diff.model import Difference, Status
from tracekit.errors import ExitCode
from tracekit.render import diff_tables, human
from tracekit.render.diff import as_json

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from tracekit.diff import Diff
    from tracekit.runs.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return pair_store(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def site(store: Store) -> Site:
    return Site(app=create_app(store), store=store, pages=load_pages())


@pytest.fixture(scope="module")
def client(store: Store) -> FlaskClient:
    client: FlaskClient = create_app(store).server.test_client()
    return client


@pytest.fixture(scope="module")
def found(store: Store) -> Diff:
    base, head, _ = store.runs()
    return diff([base], [head], references=(BASE, HEAD))


def shown(site: Site, block: str, *, base: str = BASE, run: str = HEAD, **options: str) -> str:
    view = View(page="compare", run=run, base=base, options=options)
    reported = compute_block(site, view, block, dark=False)
    text = json.dumps(reported, default=lambda one: one.to_plotly_json())
    assert '"picture": ""' not in text  # every chart is also drawn without scripts
    return text


def test_without_a_base_the_most_alike_run_is_offered_first(site: Site) -> None:
    context = site.context(View(page="compare", run=HEAD), dark=False)
    assert [run.id for run in selection.rank_by_similarity(context)] == [BASE, OTHER]
    near, far = selection.rank_by_similarity(context)
    assert selection.explain_similarity(near, context.run) == "same workload, GPU, device"
    assert selection.explain_similarity(far, context.run) == "same workload, device; blocked by different GPU"


def test_the_same_run_on_both_sides_is_not_compared(site: Site) -> None:
    assert "Both sides are the same run" in shown(site, "sides", base=HEAD)
    assert shown(site, "summary", base=HEAD) == "[]"


def test_the_parts_of_the_wall_ledger_are_shown_per_step(site: Site, found: Diff) -> None:
    assert found.wall is not None
    text = shown(site, "wall")
    for line in (*found.wall.lines, found.wall.total):
        for total in (line.a_ns, line.b_ns):
            assert not total or json.dumps(human(diff_tables.per_step(found, total), "ns"))[1:-1] in text


def test_causes_link_to_the_longest_interval_of_each_side(site: Site, found: Diff) -> None:
    text = shown(site, "work")
    for run, side in ((BASE, "a"), (HEAD, "b")):
        row = next(one.evidence[side][0] for one in found.causes if one.evidence.get(side))
        assert f"/timeline?run={run}&row=device_intervals:{row}" in text


def test_what_forbids_a_comparison_stands_above_it_and_can_be_ignored(site: Site) -> None:
    refused = shown(site, "banner", base=OTHER)
    assert "Different GPU: B in A, A in B." in refused
    assert "Compare anyway" in refused
    assert "varying=gpu" in refused
    for block in ("summary", "wall"):
        assert shown(site, block, base=OTHER) == "[]"
    declared = shown(site, "banner", base=OTHER, varying="gpu")
    assert "Different GPU (ignored)" in declared
    assert "Compare anyway" not in declared
    assert "Undo" in declared


def test_what_one_side_does_not_record_is_unknown_in_an_ignored_difference(found: Diff) -> None:
    one = Difference("gpu", "A", None, Status.DECLARED)
    ignoring = replace(found, comparability=replace(found.comparability, differences=(one,)))
    assert describe_differences(ignoring) == ["Different GPU (ignored): A in A, unknown in B."]


def test_few_steps_and_single_runs_are_doubts_and_a_spread_of_steps_is_shown(site: Site) -> None:
    doubts = shown(site, "banner")
    assert "Few steps: 2 steps of each side were compared." in doubts
    assert "One run per side (n = 1)" in doubts
    summary = shown(site, "summary")
    assert "none (n = 1)" in summary
    assert "Shortest to longest of the 2 compared steps: 6.00" in summary


def test_steps_are_counted_in_each_rank_and_captures_are_not_steps(found: Diff) -> None:
    assert found.compared is not None
    of_ranks = replace(found, compared=replace(found.compared, steps=8, ranks=8))
    assert "Few steps: 1 step of each rank was compared." in describe_doubts(of_ranks)
    assert "8 compared steps, 1 of each of 8 ranks: " in str(show_step_ranges(of_ranks))
    whole = replace(found, compared=replace(found.compared, steps=8, ranks=8, marked=False))
    assert not any("Few steps" in text for text in describe_doubts(whole))
    assert "8 compared captures, " in str(show_step_ranges(whole))


def test_sides_without_work_are_not_called_unmatched(found: Diff) -> None:
    def matched(*shares: float | None) -> list[str]:
        assert found.match is not None
        match = replace(found.match, share_a=shares[0], share_b=shares[1])
        return [text for text in describe_doubts(replace(found, match=match)) if "Matched" in text]

    assert matched(None, None) == matched(0.9, 0.8) == []
    assert matched(None, 0.0) == ["Matched work: 0.0% of B's time has a counterpart."]
    assert matched(0.5, 1.0) == ["Matched work: 50.0% of A's time and 100.0% of B's time has a counterpart."]


def test_an_address_keeps_all_fields_that_can_be_ignored() -> None:
    view = View(page="compare", options={"varying": ",".join(FIELDS)})
    assert selection.read_ignored(View.parse("/compare", view.search())) == FIELDS
    assert selection.read_ignored(View(options={"varying": "gpu,bogus,torch"})) == ("gpu", "torch")


def test_the_largest_causes_are_named_and_lead_to_both_runs(site: Site, found: Diff) -> None:
    summary = shown(site, "summary")
    assert found.causes[0].label in summary
    assert re.search(rf"/compare\?run={HEAD}&base={BASE}&row=device_intervals:\d+&side=[ab]", summary)


def test_a_row_leads_to_its_match_and_the_difference(client: FlaskClient) -> None:
    pair = f"run={HEAD}&base={BASE}"
    aligned = client.get(f"/compare/aligned?{pair}").json
    assert aligned["runs"] == [BASE, HEAD]
    assert [one["number"] for one in aligned["steps"]] == [[0, 0], [1, 1]]
    found = client.get(f"/compare/match?{pair}&row=device_intervals:1&side=a").json
    assert found["rows"] == [1, 1]
    assert found["text"].startswith("gemm: 100 ns in A, 150 ns in B (+50 ns, +50.0%); call 2 of ")
    alone = client.get(f"/compare/match?{pair}&row=device_intervals:2&side=b").json
    assert alone["rows"][0] is None
    assert "no match in A" in alone["text"]
    step = client.get(f"/compare/match?{pair}&row=steps:1&side=a").json
    assert (step["rows"], step["step"]) == ([1, 1], 1)


def test_rows_of_runs_that_are_not_compared_have_no_match(client: FlaskClient) -> None:
    assert client.get(f"/compare/aligned?run={HEAD}&base={OTHER}").json == {"refused": True}
    for query in (f"run={HEAD}&base={OTHER}&row=steps:0", f"run={HEAD}", f"run={HEAD}&base={BASE}&row=x:1"):
        assert client.get(f"/compare/match?{query}").status_code == 400


def test_fields_that_nobody_knows_are_left_out_of_what_is_declared(site: Site) -> None:
    assert "--varying gpu" in shown(site, "summary", base=OTHER, varying="bogus,gpu")


def test_the_waterfall_ends_at_the_head_and_sums_to_it(found: Diff) -> None:
    rows = {row["part"]: row for row in diff_tables.wall(found).rows}
    assert found.wall is not None
    total = rows[found.wall.total.name]
    parts = [rows[line.name] for line in found.wall.lines if line.name in rows]
    trace = shares.waterfall(parts, total)["data"][0]
    changes = [row["delta_ns"] for row in parts]
    assert sum(changes) == total["delta_ns"]
    assert [trace["base"][0], trace["base"][-1]] == [0, 0]
    level, unit = trace["x"][0], trace["x"][0] / total["base_ns"]
    for low, length, change in zip(trace["base"][1:-1], trace["x"][1:-1], changes, strict=True):
        assert low == pytest.approx(min(level, level + change * unit))
        assert length == pytest.approx(abs(change * unit))
        level += change * unit
    assert level == pytest.approx(trace["x"][-1])


def test_terms_draw_what_was_removed_to_the_left(store: Store) -> None:
    base, head, _ = store.runs()
    figure = shares.terms(diff([head], [base], options=Options(explain=False)))
    removed = next(trace for trace in figure["data"] if trace["name"] == "removed")
    assert min(removed["x"]) < 0
    assert "<script>" not in json.dumps(figure)


def test_json_is_what_the_command_writes(client: FlaskClient, found: Diff) -> None:
    answer = client.get(f"/export/compare.json?run={HEAD}&base={BASE}")
    assert answer.text == as_json(found, exit_code=0)
    assert f"{BASE}-to-{HEAD}.json" in answer.headers["Content-Disposition"]


def test_html_is_a_file_without_markup_of_the_trace(client: FlaskClient) -> None:
    answer = client.get(f"/export/compare.html?run={HEAD}&base={BASE}")
    assert answer.status_code == 200
    assert "attachment" in answer.headers["Content-Disposition"]
    assert "<script>alert" not in answer.text


def test_files_have_further_runs(client: FlaskClient) -> None:
    query = f"run={HEAD}&base={BASE}&runs={OTHER}"
    pairs = [(BASE, HEAD), (BASE, OTHER)]
    diffs = json.loads(client.get(f"/export/compare.json?{query}").text)["diffs"]
    assert [(one["base"]["run"], one["head"]["run"]) for one in diffs] == pairs
    assert [one["exit_code"] for one in diffs] == [ExitCode.OK, ExitCode.NOT_COMPARABLE]
    pair = f"run={BASE}&base={HEAD}"
    alone, rows = (
        list(csv.DictReader(client.get(f"/export/compare.csv?{pair}{more}").text.splitlines()))
        for more in ("", f"&runs={OTHER}&varying=gpu")
    )
    assert [row["head_run"] for row in rows] == [BASE] * len(alone) + [OTHER] * len(alone)
    assert alone[0].items() <= rows[0].items()
    page = client.get(f"/export/compare.html?{query}&varying=gpu")
    assert [page.text.count(f"<dd>{name}") for name in (BASE, HEAD, OTHER)] == [2, 1, 1]
    assert "and-1-more.html" in page.headers["Content-Disposition"]


def test_csv_holds_no_formulas() -> None:
    assert [quote_formula(text) for text in ("=1", "+1", "-x", "@a", "ok", -1, None)] == [
        "'=1", "'+1", "'-x", "'@a", "ok", -1, None
    ]  # fmt: skip


@pytest.mark.parametrize(
    "query", ["", f"run={HEAD}", f"run={HEAD}&base=../../etc", f"run={HEAD}&base={HEAD}"]
)
def test_a_file_needs_two_runs(client: FlaskClient, query: str) -> None:
    assert client.get(f"/export/compare.csv?{query}").status_code == 404


def test_other_kinds_of_files_are_not_made(client: FlaskClient) -> None:
    assert "attachment" not in client.get(f"/export/compare.exe?run={HEAD}&base={BASE}").headers.get(
        "Content-Disposition", ""
    )


def test_progress_has_ended_once_the_comparison_is_there(site: Site, client: FlaskClient) -> None:
    assert client.get("/progress/compare").json == {"text": "", "ended": True}
    shown(site, "wall", varying="torch")
    answer = client.get(f"/progress/compare?run={HEAD}&base={BASE}&varying=torch")
    assert answer.json == {"text": "", "ended": True}


def test_stages_are_told_while_they_run_and_not_after() -> None:
    stages, said = selection.Stages(), []

    def work(tell: Any) -> Any:
        tell("matching")
        said.append(stages.of("key"))

    stages.track("key", work)
    assert said[0].startswith("Comparing: matching")
    assert stages.of("key") == ""
    assert stages.has_ended("key")


def test_hostile_names_stay_text(site: Site) -> None:
    for block in ("banner", "summary", "work", "wall", "analyses"):
        text = shown(site, block)
        assert '"type": "Markdown"' not in text
        assert "dangerously" not in text


def test_further_runs_have_a_column_and_a_chip_that_removes_them(site: Site) -> None:
    assert shown(site, "runs") == shown(site, "each") == "[]"
    sides = shown(site, "sides", runs=OTHER)
    pair = f"/compare?run={HEAD}&base={BASE}"
    assert f'"href": "{pair}", "title": "Remove {OTHER}"' in sides
    assert f'"href": "{pair}&runs={OTHER}", "title": "Show {OTHER}' in shown(site, "sides")
    text = shown(site, "runs", runs=OTHER)
    assert "All 3 runs" in text
    base, head, other = (6_000, 6_500, 6_000)  # both steps of each run
    for value, reference in ((head, base), (other, base)):
        assert json.dumps(human(value, "ns")) in text
        assert f'"{format_change(value / reference)}"' in text


def test_each_further_run_is_compared_with_the_base(site: Site, found: Diff) -> None:
    refused = shown(site, "each", runs=OTHER)
    assert "Not comparable: GPU A in A, B here." in refused
    assert f"runs={OTHER}&varying=gpu" in refused
    ignored = shown(site, "each", runs=OTHER, varying="gpu")
    assert "Not comparable" not in ignored
    assert found.wall is not None
    for total in (found.wall.total.a_ns, found.wall.total.b_ns):
        assert json.dumps(human(diff_tables.per_step(found, total), "ns")) in ignored
    assert json.dumps("C \u00b7 B")[1:-1] in ignored  # named by what differs: the GPU


def test_base_and_head_are_no_further_runs(site: Site) -> None:
    context = site.context(
        View(page="compare", run=HEAD, base=BASE, options={"runs": f"{HEAD},gone,{OTHER},{OTHER}"}),
        dark=False,
    )
    several = selection.read_several(context)
    assert several is not None
    assert several.ids == [BASE, HEAD, OTHER]
    assert several.notes == ("Not in the store: gone.",)
    assert len(set(several.colors)) == 3


def test_fields_are_spelled_in_words() -> None:
    assert [field_name(name) for name in ("gpu", "batch_size")] == ["GPU", "batch size"]
