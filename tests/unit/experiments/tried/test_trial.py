"""`tracekit try`: which changes are chosen, how they are measured, and what is concluded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from samples.simulator import Program as Trace
from samples.simulator import write
from tests.traces import imported
from tracekit.analysis.findings import Advice
from tracekit.analysis.savings import Budget, Ranked
from tracekit.errors import UnusableInputError
from tracekit.experiments import trial
from tracekit.experiments.measure import Program, Sample
from tracekit.experiments.process import ProgramError
from tracekit.experiments.trial import TryReport, TryRequest, try_changes
from tracekit.experiments.trial_model import (
    UNCHANGED,
    Candidate,
    Measurement,
    Names,
    Schedule,
    Status,
    compare_candidates,
    read_numbers,
    uncertainty,
)
from tracekit.experiments.trial_plan import choose, collect_program, plan_turns
from tracekit.recording.agent.alternation import MIN_CYCLES, Alternation, Applied
from tracekit.recording.changes import available
from tracekit.render.trial import render
from tracekit.runs.meta import RunMeta, Timings
from tracekit.runs.metrics import STEP_TIME
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.stats.comparison import Verdict
from tracekit.stats.tests import plan

KNOWN = available()


def candidate(name: str) -> Candidate:
    return Candidate(names=(name,), changes=(KNOWN[name],))


def measured(
    ratios: dict[Names, float], runs: int = 5, *, sigma: float = 0.005, seed: int = 0
) -> list[Measurement]:
    """Step times of 10 ms with noise, times the ratio of a change."""
    rng = np.random.default_rng(seed)
    return [
        Measurement(names, block, {STEP_TIME: 1e7 * ratio * float(np.exp(rng.normal(0, sigma)))}, applied=1)
        for block in range(runs)
        for names, ratio in {UNCHANGED: 1.0, **ratios}.items()
    ]


def test_effects_are_judged_against_the_unchanged_program() -> None:
    ratios = {("foreach",): 0.8, ("fused",): 1.2, ("compile",): 1.0}
    outcomes = compare_candidates(
        [candidate(name) for (name,) in ratios], measured(ratios), plan([5])[0], threshold=0.03
    )
    assert {key: outcome.status for key, outcome in outcomes.items()} == {
        "foreach": Status.HELPS,
        "fused": Status.SLOWER,
        "compile": Status.NO_EFFECT,
    }
    assert outcomes["foreach"].effect.startswith("-19.7% (")
    assert outcomes["compile"].effect.startswith("less than ")


def test_a_wide_interval_is_not_no_effect() -> None:
    """An upper bound below the threshold passes a gate, but does not tell that a change saves nothing."""
    values = [
        Measurement(names, block, {STEP_TIME: 1e7 * step}, applied=1)
        for block, ratio in enumerate((0.90, 0.99, 0.93, 1.00, 0.98))
        for names, step in ((UNCHANGED, 1.0), (("foreach",), ratio))
    ]
    outcome = compare_candidates([candidate("foreach")], values, plan([5])[0], threshold=0.03)["foreach"]
    assert outcome.step_time is not None
    assert outcome.step_time.verdict is Verdict.PASS
    assert outcome.reason.endswith("more runs would tell")
    assert outcome.status is Status.CANNOT_TELL


def test_twelve_changes_without_effect_rarely_make_one_claim() -> None:
    names = list(KNOWN)[:12]
    claims = 0
    for seed in range(40):
        values = measured({(name,): 1.0 for name in names}, sigma=0.05, seed=seed)
        outcomes = compare_candidates([candidate(name) for name in names], values, plan()[0], threshold=0.03)
        claims += any(outcome.status in (Status.HELPS, Status.SLOWER) for outcome in outcomes.values())
    assert claims <= 3  # 1.8% are expected at the first look


def test_changes_that_were_left_out_after_one_run_count_as_tests() -> None:
    """Which were left out depends on these runs: the one that goes on is the best of all, by chance too."""
    values = measured({("foreach",): 0.9}, runs=4, sigma=0.012, seed=5)
    others = [Measurement((name,), 0, {STEP_TIME: 1.1e7}, applied=1) for name in list(KNOWN)[:11]]
    candidates = [candidate("foreach"), *(candidate(name) for name in list(KNOWN)[:11])]
    alone = compare_candidates(candidates, values, plan([4])[0], threshold=0.03)["foreach"]
    among = compare_candidates(candidates, [*values, *others], plan([4])[0], threshold=0.03)["foreach"]
    assert alone.step_time is not None and among.step_time is not None  # noqa: PT018
    assert alone.step_time.p_adjusted == alone.step_time.p
    assert among.step_time.p_adjusted == pytest.approx(12 * alone.step_time.p)


def test_changes_in_turns_have_no_order_and_those_that_were_moved_count_as_tests() -> None:
    """What has no measurement in turns is measured, and judged, in processes of its own."""
    candidates, values = [candidate("foreach"), candidate("fused")], measured({("foreach",): 0.9}, sigma=0.02)
    look = plan([5])[0]
    apart, turned = (
        compare_candidates(candidates, values, look, 0.03, in_turns=in_turns)["foreach"].step_time
        for in_turns in (False, True)
    )
    assert apart is not None and turned is not None  # noqa: PT018
    assert (apart.p_adjusted, turned.p_adjusted) == (apart.p, pytest.approx(2 * turned.p))
    steps = [
        [item.values[STEP_TIME] for item in values if item.names == names] for names in ((), ("foreach",))
    ]
    expected = ttest_rel(*np.log(steps[::-1])).pvalue
    assert turned.p == pytest.approx(expected)


def test_what_was_not_compared_says_why() -> None:
    values = [
        *measured({}),
        Measurement(("fused",), 0, {STEP_TIME: 1e7}, applied=0),
        Measurement(("compile",), 0, error="failed with exit code 1: no compiler"),
    ]
    names = ("fused", "compile", "foreach")
    outcomes = compare_candidates([candidate(name) for name in names], values, plan([5])[0], threshold=0.03)
    assert [outcomes[name].status for name in names] == [
        Status.NOT_APPLIED,
        Status.FAILED,
        Status.NOT_TRIED,
    ]
    assert outcomes["compile"].reason.endswith("no compiler")


@pytest.mark.parametrize(
    ("name", "base", "own", "text", "alters"),
    [
        ("zero_grad_to_none", [(1.0, 2.0)] * 2, (1.0, 2.0), "equal", False),
        ("zero_grad_to_none", [(1.0, 2.0)] * 2, (1.0, 2.02), "differ by up to 1%, more than it may", True),
        ("bfloat16", [(1.0, 2.0)] * 2, (1.0, 2.02), "differ by up to 1%", False),
        ("zero_grad_to_none", [(1.0, 2.0), (1.0, 2.02)], (1.0, 2.02), "differ by up to 1%", False),
        ("bfloat16", [(1.0, 2.0)] * 2, (1.0,), "1 instead of 2", True),
        ("bfloat16", [()] * 2, (), "", False),
    ],
)
def test_printed_numbers_are_compared_with_what_a_change_may_do(
    name: str, base: list[tuple[float, ...]], own: tuple[float, ...], text: str, *, alters: bool
) -> None:
    values = [
        *(Measurement(UNCHANGED, block, {STEP_TIME: 1e7}, numbers=item) for block, item in enumerate(base)),
        *(Measurement((name,), block, {STEP_TIME: 1e7}, applied=1, numbers=own) for block in range(2)),
    ]
    outcome = compare_candidates([candidate(name)], values, plan([2])[0], threshold=0.03)[name]
    assert (outcome.numbers, outcome.alters) == (text, alters)


def test_numbers_need_a_group() -> None:
    assert read_numbers(r"loss: (\S+)", "loss: 1.5\nloss: nan")[0] == 1.5
    for pattern in ("loss", "(", "(loss)"):
        with pytest.raises(UnusableInputError, match="reads no numbers"):
            read_numbers(pattern, "loss: 1.5")


def test_changes_answer_findings_first_and_then_fit_the_program() -> None:
    finding: Any = SimpleNamespace(code="host_loading", remedies=())
    against = Budget(steps=1, step_ns=1_000, marked=True)
    advice = Advice((Ranked("host_breakdown", finding, 0.4),), against, rules=1)
    settings = {"data_loaders": [{"num_workers": 0}], "optimizers": [{"class": "AdamW"}]}
    chosen = choose(advice, settings, has_device=False, known=KNOWN)
    assert (chosen[0].key, chosen[0].predicted) in {("num_workers", 0.4), ("persistent_workers", 0.4)}
    later = [item.key for item in chosen if item.predicted is None]
    assert later[:2] == ["foreach", "fused"]  # settings of the program before defaults of torch
    assert later.index("zero_grad_to_none") < later.index("bfloat16")  # equal numbers before fewer digits
    assert "pin_memory" not in {item.key for item in chosen}  # no device
    assert choose(Advice((), against, rules=1), {}, has_device=False, known=KNOWN) == []


@pytest.mark.parametrize(
    ("collector", "fits"),
    [
        ({"enabled": True, "thresholds": [700, 10, 10], "objects": 499_999}, False),
        ({"enabled": True, "thresholds": [699, 10, 10], "objects": 1}, True),
        ({"enabled": True, "thresholds": [700, 10, 10], "objects": 500_000}, True),
        ({"enabled": False, "thresholds": [100, 10, 10], "objects": 500_000}, False),
        ({"enabled": True, "thresholds": [0, 10, 10], "objects": 1}, False),
    ],
)
def test_the_garbage_collector_is_tried_where_it_has_much_to_do(
    collector: dict[str, Any], *, fits: bool
) -> None:
    advice = Advice((), Budget(steps=1, step_ns=1_000, marked=True), rules=1)
    chosen = choose(advice, {"garbage_collector": collector}, has_device=False, known=KNOWN)
    assert ({"less_garbage_collection", "freeze_objects"} <= {one.key for one in chosen}) == fits


@dataclass
class Played:
    """Stands for the processes of the program: planted step times, and what was run."""

    ratios: dict[Names, float]
    failing: Names = ("compile",)
    ended: list[Names] = field(default_factory=list)
    interrupt_at: int = 0
    losses: tuple[float, ...] = (1.0,)
    """What one process after another prints, in a program without a seed."""

    def measure(self, program: Program, *_: Any, **__: Any) -> Sample:
        words = program.command
        names = tuple(words[place + 1] for place, word in enumerate(words) if word == "--change")
        if len(self.ended) + 1 == self.interrupt_at:
            raise KeyboardInterrupt
        self.ended.append(names)
        if names == self.failing:
            raise ProgramError("the program failed with exit code 1", tail="...\nno compiler")
        noise = float(np.exp(np.random.default_rng(len(self.ended)).normal(0, 0.002)))
        counts = dict.fromkeys(names, int(names != ("num_workers",)))
        run: Any = SimpleNamespace(
            ops=100 - 40 * ("foreach" in names),
            meta=SimpleNamespace(environment={"program": {"changes": counts}}),
            rows=lambda _: 0,
        )
        return Sample(
            {STEP_TIME: 1e7 * self.ratios.get(names, 1.0) * noise}, run, output=f"loss: {self.next_loss()}"
        )

    def next_loss(self) -> float:
        return self.losses[len(self.ended) % len(self.losses)]


@pytest.fixture
def run(tmp_path: Any) -> Run:
    program = Trace()
    with program.op("aten::relu"):
        pass
    return imported(Store(tmp_path / "runs"), write(program, tmp_path / "trace.json"))


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels of the runs that are kept; the runs played here have no tables."""
    labels: list[str] = []
    monkeypatch.setattr(trial, "counts", lambda run: {"ops": float(run.ops)})
    monkeypatch.setattr(
        trial, "store_run", lambda _, __, label: labels.append(label) or SimpleNamespace(id=f"id of {label}")
    )
    return labels


def hold(
    store: Store, run: Run, played: Played, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> TryReport:
    monkeypatch.setattr(trial, "measure", played.measure)
    request = TryRequest(command=("python", "x.py"), k=4, max_k=4, check_value=r"loss: (\S+)", **options)
    return try_changes(store, request, run=run)


NAMED = ("foreach", "compile", "num_workers", "zero_grad_to_none")
RATIOS: dict[Names, float] = {
    ("foreach",): 0.8,
    ("zero_grad_to_none",): 0.9,
    ("foreach", "zero_grad_to_none"): 0.7,
}


def test_blocks_alternate_and_hopeless_changes_are_left_out(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch, kept: list[str]
) -> None:
    played = Played(RATIOS)
    report = hold(Store(tmp_path / "store"), run, played, monkeypatch, change=NAMED, combine=True)
    order = ["+".join(names) or "-" for names in played.ended]
    assert order[:5] == ["-", "foreach", "compile", "num_workers", "zero_grad_to_none"]
    assert order[5:8] == ["zero_grad_to_none", "foreach", "-"]
    assert order[8:11] == ["-", "foreach", "zero_grad_to_none"]
    assert order[-8:-4] == ["-", "foreach+zero_grad_to_none", "foreach+zero_grad_to_none", "-"]
    assert order.count("-") == 8  # the set is compared with runs at its own time
    assert {outcome.candidate.key: str(outcome.status) for outcome in report.outcomes} == {
        "foreach+zero_grad_to_none": "helps",
        "foreach": "helps",
        "zero_grad_to_none": "helps",
        "num_workers": "not applied",
        "compile": "failed",
    }
    assert kept == ["try-foreach", "try-zero_grad_to_none", "try-foreach+zero_grad_to_none"]
    work = {outcome.candidate.key: outcome.work for outcome in report.outcomes}
    assert (work["foreach"], work["zero_grad_to_none"]) == ({"ops": (100.0, 60.0)}, {})
    text = render(report, "table")
    assert "ops 100 -> 60" in text
    assert str(report.outcomes[0].effect) in text.split("In your program")[0].splitlines()[3]  # never cut
    assert f"`tracekit diff {run.id} id of try-foreach+zero_grad_to_none`" in text
    assert text.startswith("foreach and zero_grad_to_none help: step time -29.9% (")
    assert "torch.optim.AdamW(parameters, foreach=True)" in text
    assert "compile: failed: the program failed with exit code 1: no compiler" in text
    assert '"schema": "tracekit.try/1"' in render(report, "json")


def test_the_unchanged_program_is_not_run_for_nothing(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played({})
    report = hold(Store(tmp_path / "store"), run, played, monkeypatch, change=("num_workers", "compile"))
    assert played.ended == [UNCHANGED, ("num_workers",), ("compile",)]
    assert {str(outcome.status) for outcome in report.outcomes} == {"not applied", "failed"}


def test_a_short_budget_goes_to_what_seems_to_save_most(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run takes 10 s of a clock of its own: of 150 s, 15 runs."""
    played, clock = Played({("flush_denormals",): 0.7}, failing=("none",)), [0.0]
    monkeypatch.setattr(trial.time, "monotonic", lambda: clock[0])

    def measure(*arguments: Any, **options: Any) -> Sample:
        clock[0] += 10
        return played.measure(*arguments, **options)

    monkeypatch.setattr(trial, "measure", measure)
    names = ("foreach", "fused", "flush_denormals", "zero_grad_to_none")
    request = TryRequest(command=("python", "x.py"), k=4, max_k=16, change=names, budget_s=150.0)
    report = try_changes(Store(tmp_path / "store"), request, run=run)
    assert len(played.ended) <= 15
    outcomes = {outcome.candidate.key: outcome for outcome in report.outcomes}
    assert outcomes["flush_denormals"].status is Status.HELPS
    skipped = [name for name in names if outcomes[name].status is Status.CANNOT_TELL]
    assert len(skipped) == 2
    text = " ".join(render(report, "table").split())
    assert "the time ended after 1 of the 4 runs before its first test" in text


def test_the_most_uncertain_change_gets_time_first() -> None:
    """With the same noise, an effect near the threshold is the farthest from a decision."""
    ratios = {("foreach",): 0.97, ("fused",): 0.955, ("compile",): 0.9}
    candidates = [candidate(name) for (name,) in ratios]
    schedule = Schedule(candidates, plan([5, 10, 20]), 0.03, lambda _: None)
    values = measured(ratios, sigma=0.03, seed=3)
    schedule.judge(values)
    open_by = {key: uncertainty(outcome.step_time, 0.03) for key, (_, outcome) in schedule.tested.items()}
    order = sorted(candidates, key=lambda one: schedule.rank(one, values))
    decidable = [one.key for one in order if 5 * open_by[one.key] ** 2 <= 20]
    assert decidable == sorted(decidable, key=lambda key: -open_by[key])
    assert [one.key for one in order][: len(decidable)] == decidable
    assert 0 < len(decidable) < 3


@pytest.mark.parametrize("helps", [True, False])
def test_apply_says_why_there_is_no_diff(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch, *, helps: bool
) -> None:
    played = Played({("foreach",): 0.5 if helps else 1.0})
    report = hold(Store(tmp_path / "store"), run, played, monkeypatch, change=("foreach",), apply=True)
    reason = "no line of a file below this folder" if helps else "no change is seen to help"
    assert f"No diff: {reason}" in " ".join(render(report, "table").split())


def test_an_interrupted_call_goes_on(tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    store, interrupted = Store(tmp_path / "store"), Played(RATIOS, interrupt_at=6)
    with pytest.raises(KeyboardInterrupt):
        hold(store, run, interrupted, monkeypatch, change=NAMED[:1])
    later = Played(RATIOS)
    report = hold(store, run, later, monkeypatch, change=NAMED[:1])
    assert len(interrupted.ended) + len(later.ended) == 8
    assert report.outcomes[0].status is Status.HELPS
    assert not list((tmp_path / "store" / trial.FOLDER).glob("*.json"))


@pytest.mark.parametrize("changed", ["untracked", "names"])
def test_measurements_of_other_code_or_changes_are_not_resumed(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch, *, changed: str
) -> None:
    """Other changes would be compared with runs of the unchanged program of another time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("first = 1\n")
    store = Store(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        hold(store, run, Played(RATIOS, interrupt_at=6), monkeypatch, change=NAMED[:1])
    if changed == "untracked":
        (tmp_path / "x.py").write_text("second = 2\n")
    later = Played(RATIOS)
    hold(store, run, later, monkeypatch, change=NAMED[:1] if changed == "untracked" else NAMED[3:])
    assert later.ended.count(UNCHANGED) == 4


def test_a_pattern_without_a_group_is_refused_before_a_run(tmp_path: Any) -> None:
    request = TryRequest(command=("false",), check_value="loss")
    with pytest.raises(UnusableInputError, match="no group"):
        try_changes(Store(tmp_path / "store"), request, progress=pytest.fail)


@pytest.mark.parametrize("tool", ["tracekit", "/venv/bin/tracekit"])
def test_options_of_a_collect_count(tool: str) -> None:
    """Of options that are given twice the last one counts."""
    words = (tool, "collect", "--light", "--", "python", "x.py")
    ours, change = ("tracekit", "collect", "--format", "csv"), ("--change", "foreach")
    turns, timed = ("--alternate", "--start-step", "9"), ("--timed-steps", "7")
    made = collect_program(words, ("foreach",), steps=9, timed=7)
    assert made.command == (*ours, *change, *timed, "--light", *turns, "--", "python", "x.py")
    # An option of the program is none of the collection.
    words = ("python", "x.py", "--workload", "bert")
    assert collect_program(words, ("foreach",), steps=9).command == (*ours, *change, *turns, "--", *words)
    words = (tool, "collect", "--workload=bert", "--steps", "5")
    assert collect_program(words, ("foreach",), timed=7).command == (*ours, *change, *words[2:])
    made = collect_program(words, ("foreach",), steps=9)
    assert made.command == (*ours, *change, *words[2:], "--alternate", "--no-profile", "--steps", "9")


def test_after_its_time_nothing_is_begun(tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(RATIOS)
    report = hold(Store(tmp_path / "store"), run, played, monkeypatch, change=NAMED[:1], budget_s=0.0)
    assert (played.ended, report.outcomes[0].status) == ([], Status.NOT_TRIED)


def test_a_call_goes_on_where_its_time_ended(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seconds = Store(tmp_path / "store"), iter(range(1000))
    monkeypatch.setattr(trial.time, "monotonic", lambda: float(next(seconds)))
    short, later = Played(RATIOS), Played(RATIOS)
    hold(store, run, short, monkeypatch, change=NAMED[:1], budget_s=12.0)
    hold(store, run, later, monkeypatch, change=NAMED[:1])
    assert 0 < len(short.ended) < 8
    assert len(short.ended) + len(later.ended) == 8


def test_the_unchanged_program_must_not_fail(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProgramError, match="exit code 1"):
        hold(Store(tmp_path / "store"), run, Played({}, failing=UNCHANGED), monkeypatch, change=NAMED[:1])


@dataclass
class TurnsPlayed(Played):
    """In addition, changes that take turns inside a process; its program has some steps."""

    refused_from: int = 1_000
    turns: list[Names] = field(default_factory=list)

    def measure(self, program: Program, *arguments: Any, **options: Any) -> Sample:
        if "--alternate" not in program.command:
            return super().measure(program, *arguments, **options)
        words = program.command
        names = tuple(words[place + 1] for place, word in enumerate(words) if word == "--change")
        self.turns.append(names)
        if len(self.turns) > self.refused_from:
            raise ProgramError("the program failed with exit code 1", tail="no turns")
        ratios = {name: self.ratios.get((name,), 1.0) + 1e-4 * len(self.turns) for name in names}
        ratios.pop("zero_grad_to_none", None)  # which finds nothing to change
        facts = {"step_ns": 1e7, "ratios": ratios, "cycles": 9}
        counts = {name: int(name in ratios) for name in names}
        meta = SimpleNamespace(environment={"program": {"changes": counts, "alternation": facts}})
        run: Any = SimpleNamespace(meta=meta)
        return Sample({STEP_TIME: 1e7}, run)


def with_steps(
    run: Run, steps: int, *, step_ns: int = 10_000_000, settings: dict[str, Any] | None = None
) -> Run:
    """A run of a program with this number of steps without a profiler."""
    timings = Timings([step_ns] * steps, [], "perf_counter")

    class Timed(Run):
        @property
        def meta(self) -> RunMeta:
            return replace(run.meta, timings=timings, environment=settings or run.meta.environment)

    return Timed(run.path)


@pytest.mark.parametrize("refused", [False, True])
def test_changes_take_turns_and_are_then_run_as_a_whole(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch, kept: list[str], *, refused: bool
) -> None:
    played = TurnsPlayed(RATIOS | {("fused",): 1.0}, failing=("channels_last",))
    played.refused_from = 0 if refused else 1_000
    names = ("foreach", "fused", "zero_grad_to_none", "channels_last")
    report = hold(Store(tmp_path / "store"), with_steps(run, 100), played, monkeypatch, change=names)
    assert played.turns[0] == names[:3]
    status = {outcome.candidate.key: str(outcome.status) for outcome in report.outcomes}
    if refused:
        assert len(played.turns) == 1
        assert played.ended.count(("foreach",)) == 4  # each in processes of its own
        assert status["foreach"] == "helps"
        return
    assert played.turns[1:] == [names[:2]] * 3  # zero_grad_to_none is left out
    order = ["+".join(each) or "-" for each in played.ended]
    assert order == ["-", "foreach", "-", "channels_last", "fused"]
    assert status == {
        "foreach": "helps",
        "fused": "no effect",
        "zero_grad_to_none": "not applied",
        "channels_last": "failed",
    }
    work = {outcome.candidate.key: outcome.work for outcome in report.outcomes}
    assert (work["foreach"], work["fused"]) == ({"ops": (100.0, 60.0)}, {})
    assert {outcome.candidate.key: outcome.numbers for outcome in report.outcomes}["foreach"] == "equal"
    assert kept == ["try-foreach", "try-fused"]
    text = " ".join(render(report, "table").split())
    assert "4 processes in which changes were turned on and off" in text
    assert "1 run of the unchanged program beside those with one change, in alternating order" in text


def test_changes_whose_turns_end_untested_are_run_apart(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, said = TurnsPlayed(RATIOS, refused_from=2), list[str]()
    monkeypatch.setattr(trial, "measure", played.measure)
    request = TryRequest(command=("python", "x.py"), k=4, max_k=4, change=("foreach",))
    report = try_changes(Store(tmp_path / "store"), request, run=with_steps(run, 100), say=said.append)
    assert [str(outcome.status) for outcome in report.outcomes] == ["helps"]
    assert (len(played.turns), played.ended.count(("foreach",))) == (3, 4)
    assert said == ["changes could not take turns in one process: the program failed with exit code 1"]


@pytest.mark.parametrize(("losses", "alters"), [((1.0, 2.0, 3.0), False), ((1.0, 1.0, 2.0), True)])
def test_numbers_that_vary_by_themselves_are_not_altered(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch, losses: tuple[float, ...], *, alters: bool
) -> None:
    played, timed = TurnsPlayed(RATIOS, losses=losses), with_steps(run, 100)
    report = hold(Store(tmp_path / "store"), timed, played, monkeypatch, change=("foreach",))
    assert [outcome.alters for outcome in report.outcomes] == [alters]
    assert played.ended == [UNCHANGED, ("foreach",), UNCHANGED]


def test_a_process_with_many_turns_says_nothing_of_others(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns take 40 s of a clock of its own, and whole runs 5 s."""
    played, clock = TurnsPlayed(RATIOS), [0.0]
    monkeypatch.setattr(trial.time, "monotonic", lambda: clock[0])

    def measure(program: Program, *arguments: Any, **options: Any) -> Sample:
        clock[0] += 40 if "--alternate" in program.command else 5
        return played.measure(program, *arguments, **options)

    monkeypatch.setattr(trial, "measure", measure)
    request = TryRequest(command=("python", "x.py"), k=4, max_k=4, change=("foreach",), budget_s=203.0)
    report = try_changes(Store(tmp_path / "store"), request, run=with_steps(run, 100))
    assert (len(played.turns), played.ended) == (4, [UNCHANGED, ("foreach",)])
    assert report.outcomes[0].work is not None


def test_the_first_process_of_turns_ends_in_time(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workload runs as many steps as it is told to: of 1 s each, at least 99 for one change."""
    played, timed = TurnsPlayed(RATIOS), with_steps(run, 5, step_ns=10**9)
    monkeypatch.setattr(trial, "measure", played.measure)
    command = ("tracekit", "collect", "--workload", "bert")
    ended = []
    for budget_s in (20.0, 40.0):
        request = TryRequest(command=command, k=4, max_k=4, change=("foreach",), budget_s=budget_s)
        try_changes(Store(tmp_path / f"store {budget_s}"), request, run=timed)
        ended.append(len(played.turns))
    assert ended == [0, 4]  # no time passes here
    named = [candidate("foreach")]
    planned = [plan_turns(command, with_steps(run, 5), named, process_s=s)[1] for s in (0.1, 0.4, 1e3)]
    assert planned == [2 + 6 * (1 + cycles) + 1 for cycles in (3, 6, 20)]


def test_a_change_whose_whole_run_fails_does_not_help(
    tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, timed = TurnsPlayed(RATIOS, failing=("foreach",)), with_steps(run, 100)
    report = hold(Store(tmp_path / "store"), timed, played, monkeypatch, change=("foreach",))
    assert [str(outcome.status) for outcome in report.outcomes] == ["failed"]
    assert report.best is None


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("command", [("python", "x.py"), ("tracekit", "collect", "--workload", "bert")])
@pytest.mark.parametrize("steps", [None, 10])
def test_the_planned_steps_suffice_for_turns(
    run: Run, command: tuple[str, ...], count: int, steps: int | None
) -> None:
    """Slow steps, or few, get the least cycles that tell something."""
    named = [candidate(name) for name in ("foreach", "fused", "zero_grad_to_none")][:count]
    known = with_steps(run, steps or 3 + 12 * (count + 1), step_ns=10**10)
    able, planned = plan_turns(command, known, named)
    if steps and "--workload" not in command:
        assert (able, planned) == ([], 0)
        return
    cuda = SimpleNamespace(is_initialized=lambda: False)
    torch = SimpleNamespace(cuda=cuda, distributed=SimpleNamespace(is_available=lambda: False))
    turned = [Applied(one.key, lambda: None, is_on=False) for one in able]
    for one in turned:
        one()
    # the window of a program begins before its last planned step
    alternation = Alternation(torch, turned, planned - ("--workload" not in command))
    for _ in range(planned):
        alternation.end_step()
    facts: Any = alternation.facts()
    assert facts["cycles"] == MIN_CYCLES


def test_few_steps_leave_turns_to_the_first_changes(run: Run) -> None:
    """Each change needs twelve steps, as the unchanged program does, beside the two first and the last."""
    named = [candidate(name) for name in ("channels_last", "foreach", "fused", "zero_grad_to_none")]
    keys = {
        steps: [one.key for one in plan_turns(("python", "x.py"), with_steps(run, steps), named)[0]]
        for steps in (26, 27, 39, 51, 500)
    }
    assert keys == {
        26: [],
        27: ["foreach"],
        39: ["foreach", "fused"],
        51: ["foreach", "fused", "zero_grad_to_none"],
        500: ["foreach", "fused", "zero_grad_to_none"],
    }
    whole = 2 + 3 * 21 * 4 + 1
    assert plan_turns(("python", "x.py"), with_steps(run, 500), named)[1] == whole
    # Threads other than the first keep what it had at their start.
    named = [candidate("foreach"), candidate("flush_denormals")]
    for threads, able in ((1, named), (2, named[:1])):
        settings = {"program": {"threads": {"intra_op": threads}}}
        assert plan_turns(("python", "x.py"), with_steps(run, 500, settings=settings), named)[0] == able


def test_workloads_run_the_steps_of_all_turns(run: Run) -> None:
    named = [candidate(name) for name in ("channels_last", "foreach", "fused", "zero_grad_to_none")]
    whole = 2 + 3 * 21 * 4 + 1
    # A built-in workload runs as many steps as it is told to.
    workload = ("tracekit", "collect", "--workload", "bert")
    assert plan_turns(workload, with_steps(run, 5), named) == (named[1:], whole)
    assert plan_turns(workload, with_steps(run, 5, step_ns=10**9), named)[1] == 2 + 3 * 4 * 4 + 1


def test_unknown_changes_are_refused(tmp_path: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableInputError, match="unknown change 'forech'"):
        hold(Store(tmp_path / "store"), run, Played({}), monkeypatch, change=("forech",))
