"""`tracekit diff` of single runs, where the store holds repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.experiments.check.recorded import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Done
    from tracekit.runs.store import Store

    Tracekit = Callable[..., Done]


def test_the_command_takes_noise_from_the_store(tracekit: Tracekit, store: Store) -> None:
    record(store, "a" * 40, [1_000_000, 1_010_000, 990_000, 1_005_000, 995_000])
    record(store, "b" * 40, [1_000_000], label="before")
    record(store, "c" * 40, [1_300_000], label="after")
    done = tracekit("diff", "before", "after", "--exit-code", "--no-explain")
    assert done.code == 1
    assert "regression: step time 1.00 ms → 1.30 ms" in done.out
    assert "recorded runs of unchanged code" in " ".join(done.out.split())


def test_noise_of_one_session_does_not_judge_runs_of_two(tracekit: Tracekit, store: Store) -> None:
    record(store, "a" * 40, [1_000_000, 1_010_000, 990_000, 1_005_000, 995_000])
    record(store, "b" * 40, [1_000_000], label="before")
    record(store, "c" * 40, [1_300_000], label="after", apart=True)
    done = tracekit("diff", "before", "after", "--exit-code", "--no-explain")
    assert done.code == 3
    assert "the sides were recorded on different occasions" in " ".join(done.out.split())
