"""What a comparison says in sentences: its verdict, the next step, and the commands to paste."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from tests.unit.render.diffs import ONE_RUN, compared, judged, metric, refused, side
from tracekit.diff.model import Comparability, Diff, Difference, Status, Verdict
from tracekit.render import diff_sentences as sentences
from tracekit.render import diff_tables
from tracekit.runs.text import human


def test_a_metric_that_got_worse_beside_a_pass_is_in_the_headline() -> None:
    found = judged(Verdict.PASS, metric("device_peak", Verdict.REGRESSION, 1.5), metric("b", Verdict.PASS))
    assert sentences.headline(found).startswith("pass: step time")
    assert sentences.headline(found).endswith("; also device peak: regression (+50.0%)")
    assert sentences.has_regression(found)


def test_the_metric_that_decides_leads_the_headline() -> None:
    found = judged(Verdict.PASS, metric("device_peak", Verdict.REGRESSION, 1.5))
    assert sentences.headline(replace(found, verdict=Verdict.REGRESSION)).startswith(
        "regression: device peak"
    )


def test_metrics_that_pass_are_not_in_the_headline() -> None:
    found = judged(Verdict.PASS, metric("device_peak", Verdict.PASS))
    assert "beside" not in sentences.headline(found)
    assert not sentences.has_regression(found)


def test_no_change_has_no_negative_sign() -> None:
    assert "(+0.0%)" in sentences.describe_metric(metric("step_time", Verdict.PASS, 1 - 1e-9))
    assert human(-1e-9, "share") == "0.0%"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (refused("gpu"), "ignore the differences:"),
        (compared(), "at least 5 times"),
        (judged(Verdict.CANNOT_TELL), "more than 5 runs of the base and 5 of the head"),
        (judged(Verdict.PASS), ""),
    ],
)
def test_where_nothing_is_decided_the_next_step_is_named(found: Diff, expected: str) -> None:
    assert (expected in sentences.next_step(found)) if expected else sentences.next_step(found) == ""


@pytest.mark.parametrize(
    ("steps", "ranks", "marked", "expected"),
    [
        (8, 8, True, "Compared the last step of each of 8 ranks; work"),
        (6, 2, True, "Compared the last 3 steps of each of 2 ranks; work"),
        (2, 2, False, "Compared the full captures of 2 ranks; work"),
    ],
)
def test_steps_are_those_of_each_rank(steps: int, ranks: int, *, marked: bool, expected: str) -> None:
    found = compared()
    assert found.compared is not None
    of_ranks = replace(found.compared, steps=steps, ranks=ranks, marked=marked)
    assert sentences.describe_steps(replace(found, compared=of_ranks)).startswith(expected)


@pytest.mark.parametrize(("marked", "expected"), [(True, "per step"), (False, "per capture")])
def test_changes_are_of_a_capture_where_no_steps_are_marked(*, marked: bool, expected: str) -> None:
    found = compared()
    assert found.compared is not None
    found = replace(found, compared=replace(found.compared, marked=marked))
    titles = [table.title for table in diff_tables.all_tables(found) if " per " in table.title]
    assert len(titles) > 2
    assert all(expected in text for text in (sentences.describe_largest(found), *titles))


@pytest.mark.parametrize("name", ["run with spaces", "a'b", "$(reboot)", "`x`", "-", "a;b"])
def test_the_command_is_one_a_shell_reads_as_it_was_meant(name: str) -> None:
    found = compared(base=side(name))
    assert shlex.split(sentences.diff_command(found)) == ["tracekit", "diff", name, "b"]


def test_the_command_keeps_what_changes_the_answer() -> None:
    declared = Comparability(
        (Difference("gpu", 1, 2, Status.DECLARED), Difference("sm_count", 1, 2, Status.DECLARED))
    )
    found = compared(comparability=declared, by="kernel", design=replace(ONE_RUN, theta=0.025))
    assert sentences.diff_command(found) == "tracekit diff a b --varying gpu --by kernel --threshold 2.5%"


def test_only_what_does_not_follow_from_another_field_is_to_be_declared() -> None:
    assert sentences.varying_command(refused("gpu", "sm_count", "batch_size")) == (
        "tracekit diff a b --varying gpu --varying batch_size"
    )


def test_a_label_without_end_does_not_fill_the_page() -> None:
    assert len(sentences.describe_side(side("a", "x" * 5000))) < 200
