"""What `tracekit try` measured in a store: shown with findings, and compared with what rules predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median

from tracekit.analysis.findings import Advice
from tracekit.analysis.savings import TRIALS, Ranked, Trial
from tracekit.diff.noise import fingerprint_id
from tracekit.errors import TracekitError
from tracekit.experiments.state import StateFile
from tracekit.experiments.trial_model import UNDECIDED, Outcome, Status
from tracekit.runs.run import Run
from tracekit.runs.store import Store, timestamp

MIN_REFUTED = 3
"""Programs on which the changes that a rule advises were measured to save nothing, and on none to save."""


def log_outcomes(store: Store, run: Run, outcomes: Iterable[Outcome], advice: Advice) -> None:
    """Keep the measured effects of single changes in the store.

    Args:
        store: The store.
        run: Run of the unchanged program.
        outcomes: What is known of the changes; of those that were not compared nothing is kept.
        advice: Findings of the run.
    """
    now = timestamp(datetime.now(UTC))
    shares = advice.shares
    store.folder(str(TRIALS.parent))
    log = _log(store)
    for outcome in outcomes:
        comparison = outcome.step_time
        if comparison is None or not comparison.ratio or len(outcome.candidate.names) > 1:
            continue
        (change,) = outcome.candidate.changes
        log.append(
            Trial(
                run=run.id,
                configuration=fingerprint_id(run),
                created_at=now,
                change=outcome.candidate.key,
                status=str(outcome.status),
                effect=outcome.effect,
                ratio=comparison.ratio,
                ci95=comparison.ci95,
                predicted={code: shares[code] for code in change.answers if code in shares},
                code=change.code,
                changed_run=outcome.run,
            )
        )


def read_trials(store: Store) -> list[Trial]:
    """Return the trials of a store, the last one of each change of a run; none if they cannot be read."""
    last: dict[tuple[str, str], Trial] = {}
    with suppress(TracekitError, OSError):
        for trial in _log(store).records():
            last[trial.run, trial.change] = trial
    return list(last.values())


def _log(store: Store) -> StateFile[Trial]:
    return StateFile(store.local_folder / TRIALS, Trial)


def add_stored_trials(advice: Advice, run: Run, store: Store) -> Advice:
    """Return the advice with what the trials of a store measured."""
    return add_trials(advice, run, read_trials(store))


def add_trials(advice: Advice, run: Run, trials: Sequence[Trial]) -> Advice:
    """Return the advice with what trials measured; findings of refuted rules come last.

    Args:
        advice: Findings of the run.
        run: The run.
        trials: All trials of the store. Those of this run, and of others of its configuration, count.
    """
    if not trials:
        return advice
    configuration = fingerprint_id(run)
    of_run = [trial for trial in trials if run.id == trial.run or trial.configuration == configuration]
    refuted = {rule.code for rule in calibrate(trials) if rule.is_refuted}

    def add(findings: Iterable[Ranked]) -> list[Ranked]:
        return [
            replace(
                ranked,
                measured=tuple(trial for trial in of_run if ranked.codes & trial.predicted.keys()),
                is_refuted=ranked.finding.code in refuted,
            )
            for ranked in findings
        ]

    verdict = advice.verdict and replace(advice.verdict, findings=tuple(add(advice.verdict.findings)))
    return replace(advice, findings=tuple(sorted(add(advice.findings), key=_is_demoted)), verdict=verdict)


def _is_demoted(ranked: Ranked) -> bool:
    """Whether a finding comes after others: its rule is refuted, and no trial of this program helped."""
    return ranked.is_refuted and not any(trial.status == Status.HELPS for trial in ranked.measured)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Predicted and measured savings of a rule, over the trials of a store."""

    code: str  # code of the rule
    trials: int  # changes measured on programs in which the rule had a finding
    decided: int  # of these, how many were decided: they help, are slower or have no effect
    helped: int  # how many help
    predicted: float | None  # median of the predicted shares of the step; None where none was predicted
    measured: float | None  # median of the measured shares, of the change that saves most on each program
    refuted: int  # programs on which each change of the rule was decided, and none helps

    @property
    def is_refuted(self) -> bool:
        """Whether the rule loses its rank in this store."""
        return not self.helped and self.refuted >= MIN_REFUTED


def calibrate(trials: Sequence[Trial]) -> list[Calibration]:
    """Compare what each rule predicted with what trials measured, the most tried rule first."""
    codes = sorted({code for trial in trials for code in trial.predicted})
    calibrations = [
        _calibrate_rule(code, [trial for trial in trials if code in trial.predicted]) for code in codes
    ]
    return sorted(calibrations, key=lambda rule: -rule.trials)


def _calibrate_rule(code: str, trials: Sequence[Trial]) -> Calibration:
    by_run: dict[str, list[Trial]] = {}
    for trial in trials:
        by_run.setdefault(trial.run, []).append(trial)
    predicted = [of_run[0].predicted[code] for of_run in by_run.values() if of_run[0].predicted[code]]
    refuted = [
        all(trial.status not in {*UNDECIDED, Status.HELPS} for trial in of_run) for of_run in by_run.values()
    ]
    return Calibration(
        code=code,
        trials=len(trials),
        decided=sum(trial.status not in UNDECIDED for trial in trials),
        helped=sum(trial.status == Status.HELPS for trial in trials),
        predicted=median(predicted) if predicted else None,
        measured=median(max(trial.saved for trial in of_run) for of_run in by_run.values()),
        refuted=sum(refuted),
    )
