"""The gate: which runs are compared, what it says, what it exits with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.unit.experiments.check.recorded import commit, record
from tracekit.errors import CollectionError, ExitCode, UnusableInputError
from tracekit.experiments import check as check_module
from tracekit.experiments.check import Options, check
from tracekit.experiments.check_model import Outcome
from tracekit.render.check_sentences import sides
from tracekit.runs import meta as run_meta
from tracekit.runs.meta import Timings
from tracekit.stats.comparison import Verdict

if TYPE_CHECKING:
    from tests.conftest import Git
    from tracekit.experiments.check import CheckResult
    from tracekit.runs.store import Store

BASE = (1_000_000, 1_004_000, 996_000, 1_002_000, 998_000)
SLOWER = tuple(round(1.12 * step) for step in BASE)
STEP_TIME = Options(metrics=("step_time",))


def verdicts(gate: CheckResult) -> dict[str, dict[str, str]]:
    return {
        each.name: {one.name: str(one.verdict) for one in each.comparisons} for each in gate.configurations
    }


@pytest.fixture
def branch(git: Git, store: Store) -> tuple[str, str]:
    """A commit of main with five runs, and a commit of a branch from it without any."""
    base = git("rev-parse", "HEAD")
    record(store, base, BASE)
    return base, commit(git, "topic", branch="topic")


def test_a_slower_head_is_a_regression_in_its_step_time_alone(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], SLOWER)
    gate = check(store, "main")
    reported = {"step_time": "regression", "device_peak": "pass", "host_peak": "pass"}
    assert verdicts(gate) == {"resnet50 train cuda": reported}
    assert (gate.exit_code, gate.merge_base) == (ExitCode.REGRESSION, branch[0])
    assert gate.configurations[0].comparisons[0].ratio == pytest.approx(1.12)
    assert gate.configurations[0].comparisons[0].p_adjusted is not None


def test_an_unchanged_head_passes_and_a_faster_one_too(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], BASE)
    assert check(store, "main").exit_code is ExitCode.OK
    runs = record(store, branch[1], [step // 2 for step in BASE])
    gate = check(store, "main", runs=[run.id for run in runs])
    assert (gate.verdict, gate.exit_code) == (Verdict.IMPROVEMENT, ExitCode.OK)


def test_a_commit_means_all_its_runs_of_every_configuration(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], BASE)
    record(store, branch[1], BASE, mode="infer")
    gate = check(store, "main", runs=["git:topic"], options=STEP_TIME)
    assert [len(each.head.runs) for each in gate.configurations] == [5, 5]


@pytest.mark.slow
def test_a_small_change_of_noisy_runs_cannot_be_told(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], [900_000, 1_300_000, 1_000_000, 1_400_000, 850_000])
    assert check(store, "main", options=STEP_TIME).exit_code is ExitCode.CANNOT_TELL


@pytest.mark.slow
def test_device_peaks_are_exact_within_the_tolerance(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], BASE, device_peak=(1 << 30) + (1 << 20))
    options = Options(metrics=("device_peak",))
    assert check(store, "main", options=options).exit_code is ExitCode.OK
    runs = record(store, branch[1], BASE[:2], device_peak=round(1.1 * (1 << 30)))
    gate = check(store, "main", runs=[run.id for run in runs], options=options)
    assert gate.exit_code is ExitCode.REGRESSION
    assert gate.comparisons[0].method == "exact"
    assert check(store, "main", runs=[runs[0].id], options=options).exit_code is ExitCode.CANNOT_TELL


@pytest.mark.slow
def test_the_baseline_is_never_a_newer_commit_of_the_reference(git: Git, store: Store) -> None:
    """Main went on after the branch left it, and got slower: the branch must not profit."""
    record(store, git("rev-parse", "HEAD"), BASE)
    head = commit(git, "topic", branch="topic")
    git("checkout", "--quiet", "main")
    record(store, commit(git, "slow main"), SLOWER)
    runs = record(store, head, SLOWER)
    gate = check(store, "main", runs=[run.id for run in runs], options=STEP_TIME)
    assert gate.exit_code is ExitCode.REGRESSION


def test_the_nearest_ancestor_with_enough_runs_is_chosen_and_its_distance_told(
    git: Git, store: Store
) -> None:
    far = commit(git, "far")
    near = commit(git, "near")
    commit(git, "no runs")
    runs = record(store, far, BASE)
    record(store, near, BASE[:2])
    record(store, commit(git, "topic", branch="topic"), BASE)
    gate = check(store, "main")
    base = gate.configurations[0].base
    assert base is not None
    assert (base.commit, base.distance, base.runs) == (far, 2, tuple(run.id for run in runs))
    base = check(store, "main", options=Options(least=2)).configurations[0].base
    assert base is not None
    assert (base.commit, base.distance) == (near, 1)


def test_a_smaller_baseline_serves_where_no_ancestor_has_enough_and_is_told(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE[:2])
    record(store, commit(git, "topic", branch="topic"), BASE)
    gate = check(store, "main")
    assert gate.configurations[0].outcome is Outcome.COMPARED
    assert any("has 3 runs" in note for note in gate.configurations[0].notes)


def test_runs_with_changes_are_no_baseline_unless_allowed(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE, dirty=True)
    record(store, commit(git, "topic", branch="topic"), BASE)
    gate = check(store, "main")
    assert (gate.verdict, gate.exit_code) == (Verdict.NO_BASELINE, ExitCode.NOTHING_MEASURED)
    assert "5 runs with uncommitted changes were skipped" in gate.notes[0]
    assert check(store, "main", options=Options(allow_dirty=True)).exit_code is ExitCode.OK


def test_a_head_with_changes_is_compared_with_the_clean_runs_of_its_commit(git: Git, store: Store) -> None:
    sha = git("rev-parse", "HEAD")
    record(store, sha, BASE)
    record(store, sha, SLOWER, dirty=True)
    gate = check(store, "main", options=STEP_TIME)
    assert (gate.exit_code, gate.configurations[0].head.dirty) == (ExitCode.REGRESSION, True)


def test_a_head_on_the_reference_is_compared_with_its_ancestor_not_with_itself(
    git: Git, store: Store
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    record(store, commit(git, "second"), SLOWER)
    gate = check(store, "main", options=STEP_TIME)
    assert gate.exit_code is ExitCode.REGRESSION


def test_other_runs_of_the_heads_commit_are_no_baseline(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    sha = commit(git, "second")
    record(store, sha, SLOWER, label="earlier")
    record(store, sha, SLOWER, label="head")
    assert check(store, "main", label="head", options=STEP_TIME).exit_code is ExitCode.REGRESSION


def test_another_torch_is_not_comparable_unless_declared(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], BASE, torch="2.14.0")
    gate = check(store, "main")
    assert (gate.exit_code, gate.comparisons) == (ExitCode.NOT_COMPARABLE, ())
    assert [one.field for one in gate.configurations[0].differences] == ["torch"]
    declared = check(store, "main", options=Options(varying=("torch",)))
    assert declared.exit_code is ExitCode.OK


def test_a_side_whose_runs_differ_in_shape_is_refused_with_the_reason(git: Git, store: Store) -> None:
    small, large = "[[8,4],[4,4]]", "[[16,4],[4,4]]"
    record(store, git("rev-parse", "HEAD"), BASE, inputs=[large, *[small] * 4])
    record(store, commit(git, "topic", branch="topic"), SLOWER, inputs=[small] * 5)
    gate = check(store, "main")
    assert (gate.exit_code, gate.comparisons) == (ExitCode.NOT_COMPARABLE, ())
    (configuration,) = gate.configurations
    assert [one.field for one in configuration.differences] == ["shapes"]
    assert "the runs of the base differ in shapes: aten::mm [[16,4],[4,4]] in" in configuration.notes[-1]
    assert check(store, "main", options=Options(varying=("shapes",))).comparisons


def test_an_older_ancestor_with_an_equal_fingerprint_beats_a_nearer_one(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    record(store, commit(git, "other torch"), BASE, torch="2.12.0")
    record(store, commit(git, "topic", branch="topic"), BASE)
    gate = check(store, "main")
    base = gate.configurations[0].base
    assert base is not None
    assert (gate.exit_code, base.distance) == (ExitCode.OK, 1)


def test_each_configuration_has_its_own_verdict_and_one_sided_ones_are_listed(git: Git, store: Store) -> None:
    base = git("rev-parse", "HEAD")
    record(store, base, BASE)
    record(store, base, BASE, device="cpu", gpu=None)
    record(store, base, BASE, mode="infer")
    head = commit(git, "topic", branch="topic")
    record(store, head, SLOWER)
    record(store, head, BASE, device="cpu", gpu=None)
    record(store, head, BASE, workload="unet")
    gate = check(store, "main", options=STEP_TIME)
    assert verdicts(gate) == {
        "resnet50 train cuda": {"step_time": "regression"},
        "resnet50 train cpu": {"step_time": "pass"},
        "unet train cuda": {},
    }
    assert gate.missing == ("resnet50 infer cuda",)
    assert gate.configurations[2].outcome is Outcome.NO_BASELINE


@pytest.mark.slow
def test_batch_sizes_are_never_mixed(git: Git, store: Store) -> None:
    base = git("rev-parse", "HEAD")
    record(store, base, BASE)
    record(store, base, [4 * step for step in BASE], batch_size=32)
    head = commit(git, "topic", branch="topic")
    record(store, head, BASE)
    record(store, head, [4 * step for step in SLOWER], batch_size=32)
    gate = check(store, "main", options=STEP_TIME)
    assert verdicts(gate) == {
        "resnet50 train cuda, batch_size 8": {"step_time": "pass"},
        "resnet50 train cuda, batch_size 32": {"step_time": "regression"},
    }


def test_a_loader_that_waits_every_tenth_step_is_seen_by_the_mean_alone(
    branch: tuple[str, str], store: Store
) -> None:
    """The wait of every tenth step doubles: 12% more time, and no change of the median."""
    for side, wait in enumerate((2_360_000, 3_720_000)):
        runs = record(store, branch[side], BASE, steps=40, batch_size=side + 100)
        for run, step in zip(runs, BASE, strict=True):
            times = [step] * 40
            times[9::10] = [wait, wait + 1_000] * 2
            run_meta.write(run.path, replace(run.meta, timings=Timings(times, [], "cuda_event")))
    head = [run.id for run in runs]
    gate = check(store, "main", runs=head, options=replace(STEP_TIME, varying=("batch_size",)))
    (config,) = gate.configurations
    assert (gate.verdict, config.comparisons[0].ratio) == (Verdict.REGRESSION, pytest.approx(1.12, abs=0.002))
    (note,) = [text for text in config.notes if "median" in text]
    assert note.startswith(
        "step_time: in 5 of the runs the mean is up to 1.3 times the median; the times recur"
    )
    assert note.endswith("changed by +0.0%")


SESSION_LEVELS = (1.0, 1.03, 0.98, 1.01, 0.97, 1.02, 0.99, 1.0)


@pytest.mark.parametrize(
    ("slower", "sessions", "runs", "code"),
    [
        (1.12, 8, 5, ExitCode.REGRESSION),
        (1.0, 8, 5, ExitCode.OK),
        (1.5, 8, 3, ExitCode.REGRESSION),
        (1.5, 8, 1, ExitCode.CANNOT_TELL),  # one run may be an outlier
        (1.86, 7, 5, ExitCode.CANNOT_TELL),  # how much occasions differ is not known
    ],
)
def test_sides_of_different_occasions_need_earlier_sessions(
    git: Git, store: Store, slower: float, sessions: int, runs: int, code: ExitCode
) -> None:
    """Sessions differ by 2%, their runs by 0.3%: within a session, noise is no measure of the former."""
    shas = [git("rev-parse", "HEAD"), *(commit(git, f"{number}") for number in range(sessions))]
    for sha, level in zip(shas, SESSION_LEVELS, strict=False):
        record(store, sha, [round(level * step) for step in BASE[:runs]], apart=True)
    record(store, shas[-1], BASE[:runs], apart=True)
    record(
        store,
        commit(git, "topic", branch="topic"),
        [round(slower * step) for step in BASE[:runs]],
        apart=True,
    )
    gate = check(store, "main", options=Options(metrics=("step_time",), least=1))
    assert gate.exit_code is code
    (one,) = gate.comparisons
    assert one.reason.startswith("the sides were recorded on different occasions") == (
        sessions < 8 or runs < 3
    )


def test_alternating_runs_are_paired_whatever_older_runs_the_baseline_has(
    branch: tuple[str, str], store: Store
) -> None:
    """The fixture recorded five runs of the baseline, and the template records both sides in turn."""
    for number, side in enumerate("ABBAABBAAB"):
        step = round((1.12 if side == "B" else 1.0) * BASE[number // 2])
        runs = record(store, branch[side == "B"], [step], apart=True)
    (one,) = check(store, "main", runs=["git:topic"], options=STEP_TIME).comparisons
    assert (one.paired, one.runs, one.verdict) == (True, (5, 5), Verdict.REGRESSION)
    assert runs


def test_a_metric_that_only_one_side_measured_keeps_the_gate_from_passing(
    branch: tuple[str, str], store: Store
) -> None:
    record(store, branch[1], [0] * 5)
    gate = check(store, "main")
    assert gate.exit_code is ExitCode.CANNOT_TELL
    assert gate.configurations[0].one_sided == ("step_time",)


def test_labels_are_compared_without_git(store: Store) -> None:
    record(store, None, BASE, label="before")
    record(store, None, SLOWER, label="after")
    gate = check(store, "label:before", label="after", options=STEP_TIME)
    assert (gate.exit_code, gate.merge_base) == (ExitCode.REGRESSION, None)


def test_a_name_that_is_a_label_and_a_revision_is_refused(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], BASE)
    record(store, branch[0], BASE, label="main")
    with pytest.raises(UnusableInputError, match="is both a label and a git revision"):
        check(store, "main", runs=["latest~5"])


def test_runs_of_two_commits_are_no_head(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], BASE)
    with pytest.raises(UnusableInputError, match="more than one commit"):
        check(store, "main", runs=["latest", "latest~5"])


def test_nothing_recorded_is_nothing_measured(git: Git, store: Store) -> None:
    with pytest.raises(CollectionError, match="has a commit"):
        check(store, "main")


def test_alternating_runs_are_paired_and_runs_apart_are_told(branch: tuple[str, str], store: Store) -> None:
    record_alternating(branch, store)
    paired = check(store, "label:a", label="b", options=STEP_TIME)
    assert paired.comparisons[0].paired
    assert not any("drift" in note for note in paired.configurations[0].notes)
    record(store, branch[1], BASE, label="c", apart=True)
    apart = check(store, "label:a", label="c", options=STEP_TIME)
    assert not apart.comparisons[0].paired
    assert apart.verdict is Verdict.CANNOT_TELL


def test_pairs_are_those_that_were_made_together_in_whatever_order_runs_are_given(
    branch: tuple[str, str], store: Store
) -> None:
    record_alternating(branch, store)
    base, head = ([run for run in store.runs() if run.meta.label == label] for label in "ab")
    one = check_module.compare_sides(base, head, store.runs(), STEP_TIME)
    assert check_module.compare_sides(base, head[::-1], store.runs(), STEP_TIME) == one


def record_alternating(branch: tuple[str, str], store: Store) -> None:
    for number, side in enumerate("ABBAABBA"):
        sha, label = (branch[0], "a") if side == "A" else (branch[1], "b")
        record(store, sha, [1_000_000 + 1000 * number], label=label, apart=True)


def test_a_slow_clock_is_no_regression_of_the_head(branch: tuple[str, str], store: Store) -> None:
    """The base ran at 1980 MHz; the head took 12.5% longer at 1760 MHz, which are as many cycles."""
    base = record(store, branch[0], BASE, clock=1_980.0, batch_size=16)
    head = record(store, branch[1], [round(1.125 * step) for step in BASE], clock=1_760.0, batch_size=16)
    gate = check(store, "main", runs=[run.id for run in head], options=STEP_TIME)
    assert gate.configurations[0].base is not None
    assert gate.configurations[0].base.runs == tuple(run.id for run in base)
    (one,) = gate.comparisons
    assert (one.verdict, gate.exit_code) == (Verdict.CANNOT_TELL, ExitCode.CANNOT_TELL)
    assert one.reason == "SM clock 1980 MHz against 1760 MHz: regression in time, but pass in cycles"
    assert any(
        "1980 MHz in the base and 1760 MHz in the head" in note for note in gate.configurations[0].notes
    )


def test_a_tolerance_is_told_in_whole_bytes(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], BASE, device_peak=(1 << 30) + 512)
    (one,) = check(store, "main", options=Options(metrics=("device_peak",))).comparisons
    assert one.reason.endswith("within the tolerance of 1,048,576")


def test_runs_that_were_timed_with_other_settings_are_not_compared_in_silence(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE[:3], settings={"steps": 5, "warmup": 2}, steps=5)
    record(store, git("rev-parse", "HEAD"), BASE[3:], settings={"steps": 20, "warmup": 2}, steps=20)
    record(
        store,
        commit(git, "topic", branch="topic"),
        BASE,
        settings={"steps": 5, "warmup": 2},
        steps=5,
        apart=True,
    )
    (one,) = check(store, "main", options=STEP_TIME).configurations
    (note,) = [text for text in one.notes if text.startswith("step_time")]
    assert "steps was 20 in 2 base runs, 5 in 3 base runs and 5 head runs" in note
    assert one.base is not None
    assert (one.base.timed_steps, one.head.timed_steps) == ((5, 20), (5, 5))
    assert sides(one).startswith("resnet50 train cuda: 5 runs (5 timed steps each) of")
    assert "against 5 runs (5 to 20 timed steps each) of" in sides(one)


@pytest.mark.slow
def test_equal_settings_need_no_note_and_few_steps_do(branch: tuple[str, str], store: Store) -> None:
    record(store, branch[1], BASE)
    assert not any("step_time" in note for note in check(store, "main").configurations[0].notes)
    runs = record(store, branch[1], BASE, steps=2)
    gate = check(store, "main", runs=[run.id for run in runs])
    assert (
        "step_time: in some runs the mean of only 2 steps; record more steps" in gate.configurations[0].notes
    )


@pytest.mark.slow
def test_sessions_that_were_timed_otherwise_do_not_count(git: Git, store: Store) -> None:
    first = git("rev-parse", "HEAD")
    for step in 2 * BASE[:4]:
        record(store, first, [step], settings={"steps": 50}, apart=True)
    record(store, commit(git, "second"), BASE[:3], settings={"steps": 5}, apart=True)
    record(store, commit(git, "topic", branch="topic"), BASE[:3], settings={"steps": 5}, apart=True)
    options = Options(metrics=("step_time",), least=1)
    assert check(store, "main", options=options).verdict is Verdict.CANNOT_TELL
    for step in 2 * BASE[:4]:
        record(store, first, [step], settings={"steps": 5}, apart=True)
    assert check(store, "main", runs=["git:topic"], options=options).verdict is Verdict.PASS


def test_runs_of_which_other_steps_were_timed_are_not_compared_in_silence(git: Git, store: Store) -> None:
    """As when programs end sooner after the profiled steps, or an older version recorded them."""
    runs = record(store, git("rev-parse", "HEAD"), BASE, settings={"start_step": 5}, steps=4)
    for run in runs:
        assert run.meta.timings is not None
        run_meta.write(run.path, replace(run.meta, timings=replace(run.meta.timings, later=3, left_out=2)))
    record(store, commit(git, "topic", branch="topic"), BASE, settings={"start_step": 5}, steps=4)
    (one,) = check(store, "main", options=STEP_TIME).configurations
    (note,) = [text for text in one.notes if text.startswith("step_time")]
    assert note.startswith(
        "step_time: timed part was before and after the profiled steps in 5 base runs, before the profiled "
        "steps in 5 head runs"
    )
