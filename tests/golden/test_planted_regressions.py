"""Slowdowns that a benchmark once caught, simulated: the verdict is right, and the ledgers name the change.

Of each program one trace is made. A side has five runs of it, whose unprofiled timings scatter at random
around the simulated step; the runs of both sides were taken in turns.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from samples.simulator.planted import regressions as planted
from samples.simulator.planted.regressions import (
    CHECK_NS,
    CONV_NS,
    SLOWDOWNS,
    STEPS,
    TABLES,
    WORKSPACE_BYTES,
    Change,
    Regression,
    program,
    step_ns,
)
from tests import tiers
from tests.runs import START, write_table
from tests.shared_runs import analyze, copy_of
from tests.unit.experiments.check.recorded import commit, state
from tracekit.cli.main import run
from tracekit.diff import Diff, Options, diff
from tracekit.diff.breakdowns import Terms
from tracekit.diff.model import Verdict
from tracekit.runs.meta import Timings
from tracekit.runs.store import Store, new_run_id, timestamp
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from samples.simulator import Program
    from tests.conftest import Git
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

K = 5
ORDER = "ABBAABBAAB"
BETWEEN_RUNS, BETWEEN_STEPS, MEASURED_STEPS = 0.005, 0.01, 20
BARE = Options(explain=False)
REPRESENTATIVE = ("61056",)
"""Work and waits that are added."""


@cache
def case(name: str) -> Regression:
    return SLOWDOWNS[name]()


class Bench:
    """Measures programs as a benchmark does: again and again, with noise."""

    def __init__(self, shared_runs: SharedRuns, directory: Path) -> None:
        self.shared_runs, self.directory = shared_runs, directory
        self._numbers = itertools.count()

    def once(self, change: Change) -> Run:
        return self.shared_runs.simulated(program(change))

    def sides(self, base: Change, head: Change, *, seed: int) -> tuple[list[Run], list[Run]]:
        """Five runs of each side, taken in turns."""
        random = np.random.default_rng(seed)
        made = {"A": (self.once(base), program(base)), "B": (self.once(head), program(head))}
        sides: dict[str, list[Run]] = {"A": [], "B": []}
        for place, side in enumerate(ORDER):
            sides[side].append(self._again(*made[side], place, random))
        return sides["A"], sides["B"]

    def _again(self, once: Run, made: Program, place: int, random: np.random.Generator) -> Run:
        noise = random.normal(0, BETWEEN_RUNS) + random.normal(0, BETWEEN_STEPS, MEASURED_STEPS)
        taken = Timings([round(step_ns(made) * math.exp(one)) for one in noise], [], "cuda_event")
        created = timestamp(START + timedelta(minutes=place))
        known = {"run_id": f"{once.id}-{place}", "created_at": created, "timings": taken}
        return copy_of(once, self.directory / f"{next(self._numbers)}", **known)


@pytest.fixture
def bench(shared_runs: SharedRuns, tmp_path: Path) -> Bench:
    (tmp_path / "bench").mkdir()
    return Bench(shared_runs, tmp_path / "bench")


def one_each(bench: Bench, name: str, options: Options = BARE) -> Diff:
    chosen = case(name)
    return diff([bench.once(chosen.base)], [bench.once(chosen.head)], options=options)


def lines(found: Diff) -> dict[str, Terms]:
    return {cause.label: cause.terms for cause in found.causes}


def idle(found: Diff, name: str) -> int:
    assert found.wall is not None
    return {line.name: line.delta for line in found.wall.lines}[name]


@pytest.mark.parametrize("name", SLOWDOWNS)
def test_the_planted_slowdown_is_the_reported_one(name: str) -> None:
    chosen = case(name)
    ratio = step_ns(program(chosen.head)) / step_ns(program(chosen.base))
    assert ratio == pytest.approx(chosen.ratio, rel=1e-3)


@pytest.mark.parametrize("name", tiers.thinned(SLOWDOWNS, default=REPRESENTATIVE))
def test_five_runs_a_side_find_each_of_them(bench: Bench, name: str) -> None:
    chosen = case(name)
    found = diff(*bench.sides(chosen.base, chosen.head, seed=chosen.pull), options=BARE)
    assert (found.design.k, found.design.order, found.design.paired) == ((K, K), ORDER, True)
    (metric, peak) = found.metrics
    assert (found.verdict, metric.verdict) == (Verdict.REGRESSION, Verdict.REGRESSION)
    assert metric.ratio == pytest.approx(chosen.ratio, rel=0.01)
    assert metric.ci95 is not None
    assert metric.ci95[0] <= chosen.ratio <= metric.ci95[1]
    assert metric.mde is not None
    assert 0 < metric.mde < found.design.theta
    assert (peak.name, peak.verdict, peak.ratio) == ("device_peak", Verdict.PASS, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOWDOWNS)
def test_the_other_way_round_each_is_an_improvement(bench: Bench, name: str) -> None:
    chosen = case(name)
    found = diff(*bench.sides(chosen.head, chosen.base, seed=chosen.pull), options=BARE)
    assert found.verdict is Verdict.IMPROVEMENT


@pytest.mark.parametrize("seed", tiers.thinned(range(10), default=[0]))
@pytest.mark.parametrize("training", tiers.thinned([True, False], default=[True]))
def test_noise_alone_passes(bench: Bench, seed: int, *, training: bool) -> None:
    same = Change(training=training)
    found = diff(*bench.sides(same, same, seed=seed), options=BARE)
    assert [one.verdict for one in found.metrics] == [Verdict.PASS, Verdict.PASS]
    assert (found.causes, found.counts) == ((), ())


@pytest.mark.parametrize("name", tiers.thinned(SLOWDOWNS, default=REPRESENTATIVE))
def test_head_minus_base_is_the_negative_of_base_minus_head(bench: Bench, name: str) -> None:
    chosen = case(name)
    a, b = bench.once(chosen.base), bench.once(chosen.head)
    there, back = diff([a], [b], options=BARE), diff([b], [a], options=BARE)
    mirrored = {
        label: Terms(terms.removed, terms.added, -terms.count, -terms.rate)
        for label, terms in lines(there).items()
    }
    assert lines(back) == mirrored
    assert there.wall is not None
    assert back.wall is not None
    assert [-line.delta for line in there.wall.lines] == [line.delta for line in back.wall.lines]
    same = diff([b], [b], options=BARE)
    assert (same.causes, same.groups, same.counts) == ((), (), ())


def test_a_check_made_twice_is_counted_and_waited_for(bench: Bench) -> None:
    found = one_each(bench, "61056", Options())
    assert lines(found) == {
        "aten::gt": Terms(count=STEPS * CHECK_NS),
        "aten::all": Terms(count=STEPS * CHECK_NS),
        "aten::is_nonzero > aten::item > aten::_local_scalar_dense": Terms(count=STEPS),
    }
    assert {(one.name, one.a, one.b) for one in found.counts} == {
        ("vectorized_elementwise_kernel<CompareFunctor<float>, Array<char*>>", STEPS, 2 * STEPS),
        ("reduce_kernel<AndOps<bool>>", STEPS, 2 * STEPS),
        ("Memcpy D2H (device to pageable)", STEPS, 2 * STEPS),
    }
    assert found.wall is not None
    assert idle(found, "launch-bound idle") >= STEPS * case("61056").head.checked_ns
    assert idle(found, "launch-bound idle") > 0.8 * found.wall.total.delta


@pytest.mark.slow
def test_another_template_of_a_kernel_is_a_rate(bench: Bench) -> None:
    found = one_each(bench, "65594")
    chosen = case("65594")
    slower = chosen.head.add_ns - chosen.base.add_ns
    assert lines(found) == {"aten::add_": Terms(rate=STEPS * slower)}
    (group,) = found.groups
    assert (group.match_level, "vectorized" in group.name_a, "unrolled" in group.name_b) == (
        "op+shape",
        True,
        True,
    )
    assert found.counts == ()


@pytest.mark.slow
def test_another_library_is_a_rate_of_the_same_op(bench: Bench) -> None:
    found = one_each(bench, "72148")
    chosen = case("72148")
    slower = chosen.head.linear_ns - chosen.base.linear_ns
    assert lines(found) == {"aten::linear > aten::addmm": Terms(rate=STEPS * slower)}
    (group,) = found.groups
    assert (group.match_level, "sgemm" in group.name_a, "cublasLt" in group.name_b) == (
        "op+shape",
        True,
        True,
    )


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("name", ["65839 in training", "65839 in inference"])
def test_a_badly_set_up_library_is_a_rate(bench: Bench, name: str) -> None:
    found = one_each(bench, name)
    slower = case(name).head.conv_ns - CONV_NS
    assert lines(found) == {"aten::conv2d > aten::convolution": Terms(rate=STEPS * slower)}
    assert idle(found, "compute only") == STEPS * slower


@pytest.mark.slow
def test_checks_that_the_host_reads_are_added_work_and_sync_idle(bench: Bench) -> None:
    found = one_each(bench, "71904", Options())
    check = case("71904").head.bag_check_ns
    assert check is not None
    assert lines(found) == {
        "aten::embedding_bag > aten::max": Terms(added=STEPS * TABLES * check),
        "aten::embedding_bag > aten::item > aten::_local_scalar_dense": Terms(added=STEPS * TABLES),
    }
    assert {(one.name, one.a, one.b) for one in found.counts} == {
        ("Memcpy D2H (device to pageable)", 0, STEPS * TABLES),
        ("reduce_kernel<MaxOps<long>>", 0, STEPS * TABLES),
    }
    assert found.wall is not None
    assert idle(found, "synchronization idle") > 0.9 * (found.wall.total.delta - STEPS * TABLES * check)


@pytest.mark.slow
def test_a_check_after_each_launch_is_launch_bound_idle_and_no_work(bench: Bench) -> None:
    found = one_each(bench, "87855", Options())
    assert found.work is not None
    assert (found.causes, found.counts, found.work.terms) == ((), (), Terms())
    assert found.wall is not None
    assert idle(found, "launch-bound idle") > 0.8 * found.wall.total.delta > 0


KEPT = {
    "once": (planted.kept_workspace, WORKSPACE_BYTES, 0),
    "in every step": (planted.leaked_workspaces, STEPS * WORKSPACE_BYTES, WORKSPACE_BYTES),
}
"""What is kept, by how much the peak rises, and by how much memory grows in each step."""


@pytest.mark.parametrize("name", tiers.thinned(KEPT, default=["in every step"]))
def test_a_kept_workspace_is_memory_and_no_time(bench: Bench, name: str) -> None:
    make, more, _ = KEPT[name]
    chosen = make()
    found = diff(*bench.sides(chosen.base, chosen.head, seed=chosen.pull), options=BARE)
    (time, peak) = found.metrics
    assert (time.name, time.verdict) == ("step_time", Verdict.PASS)
    assert (peak.name, peak.verdict) == ("device_peak", Verdict.REGRESSION)
    assert (peak.a, peak.b) == (planted.ACTIVATION_BYTES, planted.ACTIVATION_BYTES + more)
    assert (found.causes, found.counts) == ((), ())


@pytest.mark.parametrize("name", KEPT)
def test_only_what_is_kept_in_every_step_is_growth(bench: Bench, name: str) -> None:
    make, _, growth = KEPT[name]
    chosen = make()
    before, after = (analyze(bench.once(one), "memory") for one in (chosen.base, chosen.head))
    assert before.findings == ()
    assert before.tables["leak"]["growth"].tolist() == [0]
    assert after.tables["leak"]["growth"].tolist() == [growth]
    assert [one.code for one in after.findings] == (["memory_leak"] if growth else [])


@pytest.fixture
def commits(git: Git) -> tuple[str, str]:
    """The commit of main and one of a branch."""
    return git("rev-parse", "HEAD"), commit(git, "change", branch="topic")


def stored(bench: Bench, chosen: Regression, commits: tuple[str, str]) -> Store:
    """A store with five runs of each side, as collections at two commits left them."""
    store = Store(bench.directory / "stored")
    mode = "train" if chosen.base.training else "infer"
    known = {"workload": "planted", "mode": mode, "device": "cuda", "gpu": "Simulated GPU"}
    sides = bench.sides(chosen.base, chosen.head, seed=chosen.pull)
    for sha, runs in zip(commits, sides, strict=True):
        for one in runs:
            with store.draft() as draft:
                shutil.copytree(one.path, draft.path, dirs_exist_ok=True)
                write_table(draft.path, "counters", [_peak(one)])
                name = new_run_id("planted", now=datetime.fromisoformat(one.meta.created_at))
                draft.commit(replace(one.meta, run_id=name, git=state(sha), fingerprint=known))
    return store


def _peak(of: Run) -> dict[str, Any]:
    """The peak of the allocator, as a collection asks for it at its end."""
    value = float(of.table("allocations")[C.TOTAL_ALLOCATED].max())
    name, unit = "device_peak_allocated_bytes", "bytes"
    return {C.T_NS: 0, C.SOURCE: "torch", C.METRIC: name, C.UNIT: unit, C.VALUE: value}


def printed(capsys: pytest.CaptureFixture[str], store: Store, *words: str) -> tuple[int, str]:
    code = run([*words, "--store", str(store.path), "--format", "markdown"])
    return code, capsys.readouterr().out.replace("\\", "")


def reported(
    chosen: Regression,
    bench: Bench,
    commits: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str, str]:
    """What a check of the stored runs says, and what the command that it proposes to explain it says."""
    store = stored(bench, chosen, commits)
    code, out = printed(capsys, store, "check", "--against", "main")
    proposed = re.search(r"Break down the difference: `tracekit ([^`]*)`", out)
    explained = printed(capsys, store, *shlex.split(proposed[1]))[1] if proposed else ""
    return code, out, explained


def printed_ratio(out: str, metric: str) -> float:
    """Head over base as the first line says it."""
    first = out.splitlines()[0]
    found = re.search(rf"Regression: planted \w+ cuda {metric} (?:\+([\d.]+)%|([\d.]+)×), ", first)
    assert found is not None, first
    return 1 + float(found[1]) / 100 if found[1] else float(found[2])


NAMED = {
    "61056": ("launch-bound idle", "aten::all", "reduce_kernel<AndOps<bool>>"),
    "65594": ("aten::add_", "vectorized", " → unrolled_elementwise_kernel"),
    "65839 in training": ("aten::conv2d > aten::convolution", "conv_sgemm"),
    "65839 in inference": ("aten::conv2d > aten::convolution", "conv_sgemm"),
    "71904": ("synchronization idle", "aten::embedding_bag > aten::max"),
    "72148": ("aten::linear > aten::addmm", "cublasLt"),
    "87855": ("launch-bound idle",),
}
"""What the explanation of each says in words."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOWDOWNS)
def test_a_check_of_stored_runs_fails_and_leads_to_the_cause(
    bench: Bench, commits: tuple[str, str], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    chosen = case(name)
    code, out, explained = reported(chosen, bench, commits, capsys)
    assert code == 1
    assert printed_ratio(out, "step_time") == pytest.approx(chosen.ratio, rel=0.015)
    assert [one for one in NAMED[name] if one not in explained] == []


@pytest.mark.parametrize("name", tiers.thinned(KEPT, default=["once"]))
def test_a_check_of_stored_runs_fails_for_kept_memory(
    bench: Bench, commits: tuple[str, str], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    make, more, _ = KEPT[name]
    code, out, explained = reported(make(), bench, commits, capsys)
    assert code == 1
    assert printed_ratio(out, "device_peak") == pytest.approx(1 + more / planted.ACTIVATION_BYTES, rel=0.01)
    assert "device_peak" in explained


@pytest.mark.parametrize("training", tiers.thinned([True, False], default=[False]))
def test_a_check_of_stored_runs_of_one_program_passes(
    bench: Bench, commits: tuple[str, str], capsys: pytest.CaptureFixture[str], *, training: bool
) -> None:
    same = Change(training=training)
    code, out, explained = reported(Regression(0, 1.0, same, same), bench, commits, capsys)
    assert (code, explained) == (0, "")
    assert "Pass" in out
