"""A comparison on a terminal."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tests.unit.render.diffs import cause, compared, judged, metric, refused
from tracekit.diff.model import Verdict
from tracekit.render.diff import as_text
from tracekit.render.diff_sentences import varying_command

LONG = "at::native::vectorized_elementwise_kernel<4, at::native::Functor<float>, Array<char*, 2> >(int)" * 3
MANY = tuple(cause(f"aten::op_{n}", LONG, count=851_470, rate=-18_740_000) for n in range(9))


@pytest.mark.parametrize("width", [80, 100, 140, 300])
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    others = (metric("device_peak", Verdict.REGRESSION, 1.5), metric("host_peak", Verdict.PASS))
    for found in (compared(causes=MANY), judged(Verdict.PASS, *others)):
        assert max(map(cell_len, as_text(found).splitlines())) <= width


def test_the_command_to_declare_is_in_one_line_to_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    found = refused("gpu", "world_size", "dtype", "workload", "mode")
    assert f"  {varying_command(found)}" in as_text(found).splitlines()


def test_a_column_without_room_is_where_the_hint_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = as_text(compared(causes=MANY))
    assert "--format html shows all" in text
    assert "--format csv" not in text  # it holds the causes alone


@pytest.mark.parametrize(("width", "shown"), [(100, False), (120, True)])
def test_what_a_part_of_the_step_means_is_whole_or_not_there(
    monkeypatch: pytest.MonkeyPatch, width: int, *, shown: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    wall = as_text(compared()).split("Wall ledger")[1].split("Work ledger")[0]
    assert ("meaning" in wall) is shown
    assert "…" not in wall
    assert "Σ of durations minus the time in which" in " ".join(wall.split()) or shown


def test_terms_of_less_than_a_nanosecond_a_step_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    text = as_text(compared(causes=(cause(count=5000, rate=0, added=0), cause("tiny"))))
    assert "count +5.00 µs" in text
    assert "0 ns ·" not in text


def test_next_step_follows_a_comparison_without_verdict() -> None:
    assert "tracekit ab" in as_text(compared())
    assert "tracekit noise" in " ".join(as_text(judged(Verdict.CANNOT_TELL)).split())
