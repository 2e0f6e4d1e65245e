from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.large_store import fill
from tests.runs import make_run
from tracekit.errors import UnusableInputError
from tracekit.runs import notes

pytest.importorskip("dash")

from tracekit.dashboards import run_options
from tracekit.dashboards.pages.runs.rows import StepTimes, grouped, matching, ordered, rows

if TYPE_CHECKING:
    from tracekit.runs.store import Store


def test_rows_pass_words_and_conditions_of_columns_and_are_sorted(store: Store) -> None:
    listed = rows(fill(store, [make_run(store)], 8), StepTimes())
    assert [one["workload"] for one in matching(listed, "GPT trial", {})] == []
    trial = {"label": {"filterType": "text", "type": "contains", "filter": "TRIAL 0"}}
    assert [one["workload"] for one in matching(listed, "resnet50", trial)] == ["resnet50"]
    blank = {"label": {"type": "blank"}, "size": {"filterType": "number", "type": "greaterThan", "filter": 1}}
    assert len(matching(listed, "", blank)) == 7
    by_label = ordered(listed, [{"colId": "label", "sort": "desc"}])
    assert [one["label"] for one in by_label][:2] == ["trial 0", None]
    assert ordered(listed, [{"colId": "no such", "sort": "asc"}]) == listed


def test_runs_of_a_sweep_are_one_row(store: Store) -> None:
    runs = [
        make_run(store, after_s=second, label=label) for second, label in enumerate(["s1/a", "s1/b", "x/y"])
    ]
    listed = grouped(rows(runs, StepTimes()), {"s1": "sweep"})
    assert [(one["run"], one["label"]) for one in listed] == [
        (runs[2].path.name, "x/y"),
        ("s1", "sweep of 2 runs"),
    ]


def test_notes_are_beside_the_run_and_bounded(store: Store) -> None:
    run = make_run(store)
    before = (run.path / "run.json").read_bytes()
    written = notes.write(run, tags=[" a ", "a", ""], note="b", name="c\x1b")
    assert (notes.read(run), written.tags, written.name) == (written, ("a",), "c\\x1b")
    assert (run.path / "run.json").read_bytes() == before
    with pytest.raises(UnusableInputError):
        notes.write(run, tags=["a" * 41], note="", name="")
    notes.write(run, tags=[], note="", name="")
    assert not (run.path / notes.FILE_NAME).exists()


def test_pickers_offer_the_newest_and_search_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_options, "MOST", 2)
    runs = fill(store, [make_run(store)], 6)
    oldest = runs[0].path.name
    newest = [run.path.name for run in runs[:-3:-1]]
    assert [one["value"] for one in run_options.offered(runs, oldest)] == [*newest, oldest]
    found = run_options.offered(runs, None, search="TRIAL 0")
    assert [one["value"] for one in found] == [oldest]
    assert [one["value"] for one in run_options.offered(runs, None, without=newest[0])][:1] == newest[1:]
