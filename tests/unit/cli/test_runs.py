from __future__ import annotations

import csv
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tracekit.runs.meta import Git
from tracekit.runs.text import ago

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Done
    from tracekit.runs.store import Store

GIT = Git("abcdef0123456789" * 2, "b" * 40, "main", True, "c" * 64, "2026-11-21T03:15:00+00:00")


def test_json_lists_every_run_newest_last(store: Store, tracekit: Callable[..., Done]) -> None:
    workload = {"name": "resnet50", "mode": "train", "device": "cpu"}
    first = make_run(store, label="mine", workload=workload, git=GIT)
    second = make_run(store, after_s=1)
    done = tracekit("runs", "--format", "json")
    listed = json.loads(done.out)
    assert (done.code, done.err, listed["schema"]) == (0, "", "tracekit.runs/1")
    assert [run["run_id"] for run in listed["runs"]] == [first.id, second.id]
    assert listed["runs"][0] == {
        "run_id": first.id,
        "label": "mine",
        "workload": "resnet50",
        "mode": "train",
        "device": "cpu",
        "collector": "torch",
        "created_at": "2026-11-21T03:15:00Z",
        "git": "abcdef012+",
        "unprofiled_step_ns": None,
        "rows": 2,
        "size": first.meta.tables["steps"].bytes,
    }


@pytest.mark.parametrize("output_format", ["table", "csv", "markdown"])
def test_people_and_programs_see_the_ids(
    store: Store, tracekit: Callable[..., Done], output_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run = make_run(store)
    done = tracekit("runs", "--format", output_format)
    assert done.code == 0
    assert run.id in done.out.replace("\\", "")


@pytest.mark.parametrize("width", ["50", "80", "120", "160"])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_the_table_has_a_line_per_run_and_whole_times(
    store: Store, tracekit: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, width: str, count: int
) -> None:
    runs = [make_run(store, label="before the change", after_s=second) for second in range(count)]
    monkeypatch.setenv("COLUMNS", width)
    if width != "50":
        lines = tracekit("runs").out.splitlines()
        found = [line.split()[:2] for line in lines[1 : count + 1]]
        assert found == [[run.id, run.meta.created_at] for run in runs]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", tracekit("runs").out).splitlines()
    head, *lines = plain[: count + 1]
    assert head.split()[:3] == ["run", "id", "created"]
    assert [line.split()[0] for line in lines] == [run.id for run in runs]
    assert f"  {ago(runs[0].meta.created_at, datetime.now(UTC))}" in lines[0]


def test_limit_keeps_the_newest(store: Store, tracekit: Callable[..., Done]) -> None:
    newest = [make_run(store, after_s=second) for second in range(3)][1:]
    listed = list(csv.DictReader(tracekit("runs", "--limit", "2", "--format", "csv").out.splitlines()))
    assert [row["run_id"] for row in listed] == [run.id for run in newest]


def test_an_empty_store_says_what_to_run_next(tracekit: Callable[..., Done]) -> None:
    done = tracekit("runs")
    assert (done.code, done.out) == (0, "")
    assert "tracekit collect --workload resnet50" in done.err
    assert json.loads(tracekit("runs", "--format", "json").out) == {"schema": "tracekit.runs/1", "runs": []}


def test_a_run_of_another_version_is_named_and_hides_no_other(
    store: Store, tracekit: Callable[..., Done]
) -> None:
    kept, newer = make_run(store), make_run(store, after_s=1, schema_version=999)
    done = tracekit("runs", "--format", "csv")
    assert kept.id in done.out
    assert f"skipped {newer.path.name}" in done.err
    assert "upgrade tracekit" in done.err


def test_runs_are_selected_by_what_is_given(store: Store, tracekit: Callable[..., Done]) -> None:
    mine = make_run(store, label="mine", workload={"name": "resnet50"}, git=GIT)
    other = make_run(store, after_s=1, label="other", workload={"name": "resnet50"})
    ids = {
        ("--label", "mine"): [mine.id],
        ("--workload", "resnet50"): [mine.id, other.id],
        ("--workload", "resnet50", "--label", "other"): [other.id],
        ("--commit", GIT.sha[:8]): [mine.id],
        ("--since", "1s"): [],
        ("--since", "99999d"): [mine.id, other.id],
    }
    for words, expected in ids.items():
        done = tracekit("runs", "--format", "json", *words)
        assert [run["run_id"] for run in json.loads(done.out)["runs"]] == expected, words
    assert "none of 2 runs" in tracekit("runs", "--label", "no such").err
    assert "no git revision" in tracekit("runs", "--commit", "no such").err
