"""Each claim passes on a simulated run that keeps it, and fails on one that does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samples.proof.claims import CLAIMS, Verdict, judge_all
from samples.proof.judges import Outcome, Recorded
from samples.proof.processes import Ended, State
from samples.proof.recipes import RECIPES
from tests import proof_runs
from tests.proof_runs import (
    RUNS,
    Simulated,
    chosen,
    copies,
    graphs,
    loop,
    matmul,
    pauses,
    plain,
    ranks,
    sampled,
)
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.runs.run import Run

NOW = datetime(2026, 11, 21, 3, 15, tzinfo=UTC)
DOCUMENT = Path(__file__).parents[3] / "docs/gpu.md"


class Recordings:
    """Imports simulated recordings, the passing ones once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._store = folder, Store(folder / "store")
        self._kept: dict[str, Recorded] = {}
        self._count = 0

    def passing(self, name: str) -> Recorded:
        if name not in self._kept:
            self._kept[name] = self.of(name, RUNS[name]())
        return self._kept[name]

    def of(self, name: str, simulated: Simulated) -> Recorded:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        now = NOW + timedelta(seconds=self._count)
        run: Run = simulated.imported(self._store, name, folder, now=now)
        return Recorded(ended=Ended(state=State.OK, facts=simulated.facts, code=0), run=run)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return Recordings(tmp_path_factory.mktemp("proof"))


def bare(wall_ns: int = 1_000_000) -> Recorded:
    return Recorded(ended=Ended(state=State.OK, facts={"wall_ns": 20 * wall_ns, "steps": 20}, code=0))


def verdicts(claim: str, recorded: dict[str, Recorded]) -> dict[tuple[str, ...], Verdict]:
    return {one.recipes: one for one in judge_all(recorded) if one.claim == claim}


def everything(recordings: Recordings) -> dict[str, Recorded]:
    failing = {"out-of-memory": Ended(state=State.OK, code=2), "cuda-error": Ended(state=State.OK, code=1)}
    return {
        "loop": bare(),
        **{name: recordings.passing(name) for name in RUNS},
        **{name: Recorded(ended=ended) for name, ended in failing.items()},
    }


def test_every_claim_passes_where_it_is_kept(recordings: Recordings) -> None:
    found = judge_all(everything(recordings))
    assert {one.claim for one in found} == {claim.name for claim in CLAIMS}
    other = [one for one in found if one.outcome is not Outcome.PASS]
    assert [(one.claim, one.recipes, one.outcome) for one in other] == [
        ("steady", (f"copy-{memory}",), Outcome.NOT_APPLICABLE) for memory in ("pinned", "pageable")
    ]  # as on a GPU, copies launch no kernels


BROKEN: list[tuple[str, str, Callable[[], Simulated]]] = [
    ("on_device", "size-test", lambda: Simulated(programs=[proof_runs.train()], device="cpu")),
    ("linked", "size-test", lambda: plain(unlinked=1)),
    ("steady", "size-test", lambda: plain(uneven=True)),
    ("event_clock", "loop-attached", lambda: loop(event_ns=930_000)),
    ("attached", "loop-attached", lambda: loop(wall_ns=1_060_000)),
    ("same_kernels", "nsys", lambda: proof_runs.under_nsys(uneven=True)),
    ("same_kernels", "nsys", lambda: proof_runs.under_nsys(kernel_ns=104_000)),
    ("matmul_rate", "matmul-fp32", lambda: matmul("fp32", share=1.02)),
    ("matmul_rate", "matmul-bf16", lambda: matmul("bf16", share=0.4)),
    ("matmul_rate", "matmul-tf32", lambda: matmul("fp32", named="tf32")),
    ("copy_rate", "copy-pinned", lambda: copies("pinned", gb_per_s=15.0)),
    ("copy_rate", "copy-pageable", lambda: copies("pageable", gb_per_s=40.0)),
    ("copy_memory", "copy-pinned", lambda: copies("pinned", recorded_as="pageable")),
    ("nvml_memory", "size-gpu", lambda: sampled(nvml_bytes=7e9)),
    ("spin", "pauses", lambda: pauses(event_ns=12_000_000)),
    ("spin", "pauses", lambda: pauses(double=1.8)),
    ("pause", "pauses", lambda: pauses(idle_ns=22_000_000)),
    ("pause", "pauses", lambda: pauses(idle_ns=15_000_000)),
    ("occupancy", "size-test", lambda: plain(occupancy_pct=50)),
    ("graph_nodes", "cuda-graph", lambda: graphs(lost=True)),
    ("compiled", "inductor", plain),
    ("every_rank", "two-ranks", lambda: ranks(present=1)),
    ("chosen_device", "visible-devices", lambda: chosen(uuid="0" * 8 + proof_runs.UUID[8:])),
    ("mig_named", "mig", plain),
]


@pytest.mark.parametrize(
    ("claim", "recipe", "make"),
    BROKEN,
    ids=[f"{claim}-{number}" for number, (claim, *_) in enumerate(BROKEN)],
)
def test_a_claim_fails_where_it_is_broken(
    claim: str, recipe: str, make: Callable[[], Simulated], recordings: Recordings
) -> None:
    recorded = {"loop": bare(), "bf16": recordings.passing("bf16"), recipe: recordings.of(recipe, make())}
    (failed,) = (one for names, one in verdicts(claim, recorded).items() if recipe in names)
    assert failed.outcome is Outcome.FAIL
    assert failed.numbers


def test_every_claim_is_tested_where_it_fails() -> None:
    assert {claim for claim, *_ in BROKEN} | {"failure_named"} == {claim.name for claim in CLAIMS}


def test_an_error_that_does_not_name_its_cause_fails() -> None:
    ended = Ended(state=State.FAILED, code=1, reason="its error does not name 'out of memory'")
    (one,) = (
        each
        for names, each in verdicts("failure_named", {"out-of-memory": Recorded(ended=ended)}).items()
        if names == ("out-of-memory",)
    )
    assert (one.outcome, one.reason) == (Outcome.FAIL, ended.reason)


UNDECIDED: list[tuple[str, str, Callable[[], Simulated], Outcome]] = [
    ("event_clock", "loop-attached", lambda: loop(host_ns=300_000), Outcome.NOT_APPLICABLE),
    ("matmul_rate", "matmul-fp32", lambda: matmul("fp32", device="Unlisted GPU"), Outcome.NOT_APPLICABLE),
    ("copy_rate", "copy-pinned", lambda: copies("pinned", pcie={}), Outcome.NOT_APPLICABLE),
    ("copy_memory", "copy-pinned", lambda: copies("pinned", without="memory"), Outcome.NOT_APPLICABLE),
    ("copy_memory", "copy-pinned", lambda: copies("pinned", without="bytes"), Outcome.NOT_APPLICABLE),
    ("copy_rate", "copy-pinned", lambda: copies("pinned", without="bytes"), Outcome.NOT_APPLICABLE),
    ("nvml_memory", "size-gpu", plain, Outcome.NOT_APPLICABLE),
    ("occupancy", "size-test", lambda: plain(occupancy_pct=0), Outcome.NOT_APPLICABLE),
    (
        "copy_rate",
        "copy-pinned",
        lambda: copies("pinned", device="NVIDIA GH200 480GB"),
        Outcome.NOT_APPLICABLE,
    ),
    ("matmul_rate", "matmul-fp32", plain, Outcome.UNKNOWN),
    ("copy_rate", "copy-pinned", plain, Outcome.UNKNOWN),
    ("spin", "pauses", plain, Outcome.UNKNOWN),
    ("pause", "pauses", plain, Outcome.UNKNOWN),
]


@pytest.mark.parametrize(("claim", "recipe", "make", "outcome"), UNDECIDED)
def test_a_claim_that_cannot_be_judged_says_so(
    claim: str, recipe: str, make: Callable[[], Simulated], outcome: Outcome, recordings: Recordings
) -> None:
    found = verdicts(claim, {recipe: recordings.of(recipe, make())})[recipe,]
    assert found.outcome is outcome
    assert found.reason


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (State.FAILED, Outcome.UNKNOWN),
        (State.TIMEOUT, Outcome.UNKNOWN),
        (State.NOT_RUN, Outcome.UNKNOWN),
        (State.NOT_APPLICABLE, Outcome.NOT_APPLICABLE),
    ],
)
def test_a_claim_of_a_recipe_without_a_result_gives_its_reason(
    state: State, outcome: Outcome, recordings: Recordings
) -> None:
    ended = Ended(state=state, reason="no nsys")
    recorded = {"bf16": recordings.passing("bf16"), "nsys": Recorded(ended=ended)}
    found = verdicts("same_kernels", recorded)["bf16", "nsys"]
    assert found.outcome is outcome
    assert "nsys" in found.reason


def test_claims_name_recipes_that_exist_and_are_documented() -> None:
    known = {one.name for one in RECIPES}
    assert {name for claim in CLAIMS for group in claim.recipes for name in group} <= known
    text = DOCUMENT.read_text()
    assert [claim.name for claim in CLAIMS if f"`{claim.name}`" not in text] == []
    assert [one.name for one in RECIPES if f"`{one.name}`" not in text] == []
