"""Measured effects: kept in the store, shown with findings, and held against what rules predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tracekit.analysis import Finding, Severity
from tracekit.analysis.findings import Advice
from tracekit.analysis.savings import Budget, Ranked, Trial
from tracekit.cli.main import run as command
from tracekit.experiments.trial_log import add_trials, calibrate, log_outcomes, read_trials
from tracekit.experiments.trial_model import Candidate, Outcome, Status, compare_candidates
from tracekit.recording.changes import available
from tracekit.render.findings import describe_trials, render
from tracekit.stats.tests import plan

from .test_trial import measured

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

KNOWN = available()
RULES = ("small_optimizer_kernels", "host_loading")


def advice(*codes: str, share: float = 0.2) -> Advice:
    ranked = [
        Ranked("ops", Finding(code, Severity.HIGH, f"title of {code}", "do it", 1_000, confidence=1.0), share)
        for code in codes
    ]
    return Advice(tuple(ranked), Budget(steps=1, step_ns=5_000, marked=True), rules=2)


def outcomes(**ratios: float) -> list[Outcome]:
    values = measured({(name,): ratio for name, ratio in ratios.items()})
    candidates = [Candidate(names=(name,), changes=(KNOWN[name],)) for name in ratios]
    return list(compare_candidates(candidates, values, plan([5])[0], threshold=0.03).values())


def trial(run: str, status: Status, ratio: float = 1.0, code: str = RULES[0], share: float = 0.2) -> Trial:
    return Trial(
        run=run,
        configuration="",
        created_at="",
        change="foreach",
        status=str(status),
        effect="",
        ratio=ratio,
        ci95=None,
        predicted={code: share},
        code="",
    )


def test_effects_are_kept_and_shown_with_findings_of_the_program(store: Store) -> None:
    run, again = make_run(store), make_run(store, after_s=1)
    other = make_run(store, after_s=2, fingerprint={"workload": "other"})
    tried = outcomes(foreach=0.8, num_workers=1.2)
    log_outcomes(store, run, [replace(tried[0], status=Status.CANNOT_TELL)], advice(*RULES))
    pair = Candidate(names=("foreach", "fused"), changes=(KNOWN["foreach"], KNOWN["fused"]))
    log_outcomes(store, run, [*tried, replace(tried[0], candidate=pair)], advice(*RULES))
    trials = read_trials(store)
    assert [(one.change, one.status, one.predicted) for one in trials] == [
        ("foreach", "helps", {RULES[0]: 0.2}),  # the last one
        ("num_workers", "slower", {RULES[1]: 0.2}),
    ]
    for shown in (run, again):
        first, second = add_trials(advice(*RULES), shown, trials).findings
        assert [one.change for one in first.measured] == ["foreach"]
        assert describe_trials(first)[0].startswith("tried `foreach`: helps, step time -19.")
        assert [one.status for one in second.measured] == ["slower"]
    assert not any(ranked.measured for ranked in add_trials(advice(*RULES), other, trials).findings)


def test_output_of_findings(store: Store) -> None:
    run = make_run(store)
    log_outcomes(store, run, outcomes(foreach=0.8), advice(RULES[0]))
    shown = add_trials(advice(RULES[0]), run, read_trials(store))
    text = render(run.id, shown.findings, shown, "table", more="more")
    assert text.index("title of small") < text.index("→ tried `foreach`: helps") < text.index("→ do it")
    (row,) = json.loads(render(run.id, shown.findings, shown, "json"))["findings"]
    assert row["measured"][0]["ratio"] == pytest.approx(0.8, abs=0.02)


def test_a_rule_that_three_programs_refute_comes_last(store: Store) -> None:
    run = make_run(store)
    refuting = [trial(f"run-{number}", Status.NO_EFFECT) for number in range(3)]
    assert [ranked.finding.code for ranked in add_trials(advice(*RULES), run, refuting).findings] == [
        *reversed(RULES)
    ]
    undecided = [*refuting[:2], trial("run-2", Status.CANNOT_TELL)]
    helpful = [*refuting, trial("run-3", Status.HELPS, 0.5)]
    for trials in (refuting[:2], undecided, helpful):
        assert [ranked.finding.code for ranked in add_trials(advice(*RULES), run, trials).findings] == [
            *RULES
        ]


def test_rules_are_calibrated_by_the_best_change_of_each_program() -> None:
    trials = [
        trial("a", Status.HELPS, 0.7),
        trial("a", Status.SLOWER, 1.5),
        trial("b", Status.NO_EFFECT, 1.0, share=0.4),
        trial("c", Status.CANNOT_TELL, 0.9, code=RULES[1], share=0.0),
    ]
    first, second = calibrate(trials)
    assert (first.code, first.trials, first.decided, first.helped, first.refuted) == (RULES[0], 3, 3, 1, 1)
    assert (first.predicted, first.measured) == (pytest.approx(0.3), pytest.approx(0.15))
    assert (second.decided, second.predicted, second.refuted) == (0, None, 0)


def test_the_command(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["calibration", "--store", str(tmp_path / "none")]) == 0
    assert "this store has no trials" in capsys.readouterr().err
    log_outcomes(store, make_run(store), outcomes(foreach=0.8, malloc=1.0), advice(RULES[0]))
    assert command(["calibration", "--store", str(store.path)]) == 0
    assert "small_optimizer_kernels" in capsys.readouterr().out
    assert command(["calibration", "--store", str(store.path), "--format", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["schema"], [rule["helped"] for rule in content["rules"]]) == (
        "tracekit.calibration/1",
        [1],
    )
    assert [one["change"] for one in content["trials"]] == ["foreach", "malloc"]
