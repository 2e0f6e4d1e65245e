"""History page: order of commits, and verdicts of the statistics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.blocks import compute_block
from tracekit.dashboards.components.links import distinct_colors
from tracekit.dashboards.components.several_runs import MAX_RUNS, name_runs
from tracekit.dashboards.components.text import format_change
from tracekit.dashboards.figures import sweep
from tracekit.dashboards.pages import history
from tracekit.dashboards.pages.history import (
    bisect_command,
    commit_states,
    endpoints,
    group_by_configuration,
    read_subjects,
)
from tracekit.dashboards.site import Site, View

from tests.runs import make_run
from tracekit.runs.meta import Git, Timings
from tracekit.stats.compare import compare
from tracekit.stats.comparison import Metric, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

COMMAND = ["tracekit", "collect", "--workload", "resnet50"]


def recorded(
    store: Store,
    day: int,
    *step_ns: int,
    dirty: bool = False,
    command: list[str] = COMMAND,
    at: int | None = None,
) -> list[Run]:
    git = Git(
        f"{day:02x}" * 20,
        "",
        "main",
        dirty=dirty,
        diff_sha256="d" if dirty else None,
        commit_time=f"2026-11-{day:02d}T10:00:00+01:00",
    )
    return [
        make_run(
            store,
            after_s=(3600 * day if at is None else at) + place,
            fingerprint={"workload": "w"},
            timings=Timings([length], [], "perf_counter"),
            git=git,
            command=command,
        )
        for place, length in enumerate(step_ns)
    ]


@pytest.fixture
def slower(store: Store) -> list[Run]:
    """Three commits, the second of them 50% slower, recorded in turn, the newest first or last."""
    turns = [(3, 1500), (2, 1500), (1, 1000), (1, 1005), (2, 1490), (3, 1510), (3, 1495), (2, 1505), (1, 995)]
    return [run for at, (day, length) in enumerate(turns) for run in recorded(store, day, length, at=at)]


def shown(store: Store, **options: str) -> str:
    site = Site(app=create_app(store), store=store, pages=load_pages())
    reported = compute_block(site, View(page="history", options=options), "history", dark=False)
    text = json.dumps(reported, default=lambda one: one.to_plotly_json())
    assert '"picture": ""' not in text  # every chart is also drawn without scripts
    return text


def test_commits_are_in_the_order_of_their_time(slower: list[Run]) -> None:
    found = commit_states(slower, "step_time")
    assert [state.git.sha[:2] for state in found] == ["01", "02", "03"]
    assert [state.median_value for state in found] == [1000, 1500, 1500]


def test_the_table_of_the_history_is_limited(
    store: Store, slower: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "older commits" not in shown(store)
    monkeypatch.setattr(history, "MAX_COMMITS", 2)
    assert "1 older commits are only in the chart" in shown(store)


def test_a_change_is_judged_against_the_commit_before(slower: list[Run]) -> None:
    first, second, third = commit_states(slower, "step_time")
    assert first.change is None
    assert second.change is not None
    assert third.change is not None
    in_blocks = {"paired": True, "base_first": [False, True, False]}
    reported = compare(Metric("step_time"), first.values, second.values, **in_blocks)
    assert (second.change.verdict, second.change.ratio, second.change.ci95) == (
        reported.verdict,
        reported.ratio,
        reported.ci95,
    )
    assert second.change.verdict is Verdict.REGRESSION
    assert third.change.verdict is Verdict.PASS


def test_commits_recorded_one_after_the_other_are_judged_by_sessions(store: Store) -> None:
    runs = [*recorded(store, 1, 1000, 1005, 995), *recorded(store, 2, 1500, 1490, 1505)]
    change = commit_states(runs, "step_time")[1].change
    assert change is not None
    assert (change.verdict, change.ratio) == (Verdict.CANNOT_TELL, pytest.approx(1.5, rel=0.01))
    assert "different occasions" in change.reason
    levels = enumerate([1003, 990, 1010, 1001, 985, 1002, 1009, 996], 3)
    others = [run for day, level in levels for run in recorded(store, day, level, level + 1, at=86_400 * day)]
    change = commit_states([*runs, *others], "step_time")[1].change
    assert change is not None
    assert change.verdict is Verdict.REGRESSION


def test_a_step_of_the_whole_history_is_marked_although_neighbors_tell_nothing(store: Store) -> None:
    levels = [1000, 1007, 992, 1004, 998, 1001, 995, 1003, 1201, 1196, 1207, 1190, 1203, 1199, 1205, 1195]
    runs = [
        run for day, level in enumerate(levels, 1) for run in recorded(store, day, level, at=86_400 * day)
    ]
    states = commit_states(runs, "step_time")
    assert {state.change.verdict for state in states[1:] if state.change} == {Verdict.CANNOT_TELL}
    assert [state.name[:2] for state in states if state.begins] == ["09"]
    text = shown(store)
    assert "Over all 16 sessions, the level has 1 step" in text
    assert "level between steps" in text
    assert "bisect 080808080808..090909090909" in text


def test_runs_from_before_the_cores_were_recorded_share_the_page_of_their_configuration(store: Store) -> None:
    git, timings = recorded(store, 1, 1000)[0].meta.git, Timings([1000], [], "perf_counter")
    fields = {"workload": "w", "cpu_cores": 2}
    new = make_run(store, after_s=90_000, fingerprint=fields, git=git, timings=timings)
    groups = group_by_configuration(store.runs())
    assert [len(group) for group in groups.values()] == [2]
    other = make_run(store, after_s=90_001, fingerprint=fields | {"cpu_cores": 4}, git=git, timings=timings)
    groups = group_by_configuration(store.runs())
    assert sorted(len(group) for group in groups.values()) == [1, 1, 1]
    assert new.path in {run.path for group in groups.values() for run in group} > {other.path}


def test_uncommitted_changes_are_shown_but_not_judged(store: Store, slower: list[Run]) -> None:
    found = commit_states([*slower, *recorded(store, 2, 5000, 5100, dirty=True)], "step_time")
    assert [state.name for state in found] == ["01010101", "02020202", "02020202+", "03030303"]
    assert found[2].change is None
    assert found[3].before is not None
    assert not found[3].before.git.dirty


def test_one_run_a_commit_is_never_a_change(store: Store) -> None:
    runs = [*recorded(store, 1, 1000), *recorded(store, 2, 9000)]
    change = commit_states(runs, "step_time")[1].change
    assert change is not None
    assert change.verdict is Verdict.CANNOT_TELL


def test_configurations_of_most_commits_come_first(store: Store, slower: list[Run]) -> None:
    other = make_run(
        store, fingerprint={"workload": "v"}, timings=Timings([1], [], "x"), git=slower[0].meta.git
    )
    without = make_run(store, fingerprint={"workload": "u"}, timings=Timings([1], [], "x"))
    assert [len(own) for own in group_by_configuration([other, without, *slower]).values()] == [9, 1]


def test_the_page_marks_the_change_and_gives_both_commands(store: Store, slower: list[Run]) -> None:
    text = shown(store)
    assert "\\u25b2 +" in text
    assert "tracekit bisect 010101010101..020202020202 --metric step_time -- tracekit collect" in text
    base, head = (state.typical.path.name for state in commit_states(slower, "step_time")[:2])
    assert f"/compare?run={head}&base={base}&repeats=all" in text


def test_runs_are_shown_over_each_other(store: Store, slower: list[Run]) -> None:
    assert "to see their step times and metrics on one chart" in shown(store)
    first, second, third = (run.path.name for run in slower[:3])
    assert f"&runs={first}" in shown(store)
    text = shown(store, runs=f"{third},{first}")
    assert f"/compare?run={first}&base={third}" in text
    assert f'&runs={third}"' in text  # without the first
    assert f'&runs={third}%2C{first}%2C{second}"' in text
    assert json.dumps(format_change(slower[0].meta.timings.step_ns[0] / 1000)) in text


def test_more_runs_than_colors_are_left_out(store: Store, slower: list[Run]) -> None:
    ids = [run.path.name for run in slower]
    text = shown(store, runs=",".join(ids))
    assert "At most 8 runs are shown together: 1 more of the address left out." in text
    assert f"Show {ids[-1]} over the others" not in text
    assert f"Show {ids[-1]} over the others" in shown(store, runs=",".join(ids[:-2]))
    assert len(set(distinct_colors(slower[:MAX_RUNS]))) == MAX_RUNS


def test_names_of_runs_begin_with_what_differs(store: Store, slower: list[Run]) -> None:
    run = slower[2]
    assert name_runs([run, slower[3]]) == [run.path.name[-6:], slower[3].path.name[-6:]]
    settings = [{"workload": "w", "batch_size": size, "shapes": f"[{size}]"} for size in (8, 16)]
    small, large = (make_run(store, fingerprint=one, git=run.meta.git, after_s=99) for one in settings)
    assert name_runs([small, large]) == ["batch size 8", "batch size 16"]
    assert name_runs([run, slower[4]]) == ["0101010", "0202020"]


def test_only_what_tracekit_collected_is_offered_to_be_run_again(store: Store) -> None:
    runs = [
        *recorded(store, 1, 1, command=["rm", "-rf", "/"]),
        *recorded(store, 2, 2, command=["rm", "-rf", "/"]),
    ]
    found = endpoints(commit_states(runs, "step_time"))
    assert found is not None
    assert bisect_command(*found, "step_time") == ""


def test_a_command_is_quoted(store: Store) -> None:
    runs = recorded(store, 1, 1) + recorded(
        store, 2, 2, command=["tracekit", "collect", "--label", "a; rm -rf /"]
    )
    found = endpoints(commit_states(runs, "step_time"))
    assert found is not None
    assert bisect_command(*found, "step_time").endswith("'a; rm -rf /'")


def test_subjects_are_left_out_where_git_does_not_know_the_commits(slower: list[Run], tmp_path: Path) -> None:
    assert read_subjects(commit_states(slower, "step_time"), tmp_path) == {}


def test_a_store_without_commits_says_what_to_run(store: Store) -> None:
    make_run(store)
    assert "tracekit collect" in shown(store)


def test_a_metric_that_was_not_measured_is_said_to_be_absent(store: Store, slower: list[Run]) -> None:
    assert "has device peak memory" in shown(store, metric="device_peak")


def test_marks_stand_before_their_commit_and_dirty_runs_are_open() -> None:
    drawn = [
        sweep.Commit("a", "<b>a</b>", (1e6,), 1e6, ("/overview?run=a",), ("#1",)),
        sweep.Commit("b", "b", (2e6, 3e6), 2.5e6, ("", ""), ("#2", "#3"), mark="▲ +150.0%"),
        sweep.Commit("b+", "b", (9e6,), 9e6, ("",), ("#4",), dirty=True),
    ]
    figure = sweep.over_commits(drawn, "ns", title="step time")
    medians, runs, dirty = figure["data"]
    assert (medians["y"], runs["y"], dirty["y"]) == ([1.0, 2.5], [1.0, 2.0, 3.0], [9.0])
    assert dirty["marker"]["symbol"] == "circle-open"
    assert (runs["marker"]["color"], dirty["marker"]["color"]) == (["#1", "#2", "#3"], ["#4"])
    assert figure["layout"]["shapes"][0]["x0"] == 0.5
    assert "<b>" not in json.dumps(figure)
