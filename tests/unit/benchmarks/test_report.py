"""Benchmark reports from known costs."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.page import number, page
from benchmarks.parts import Case, Part
from benchmarks.report import document, exponent, ratio
from benchmarks.runner import Contender, Cost, Row


def row(name: str, *walls: float, against: str = "", failed: str = "", **reported: float) -> Row:
    contender = Contender(name=name, does=f"task of {name}", command=lambda _: [], against=against)
    costs = [Cost(wall_s=wall, cpu_s=2 * wall, peak_mb=10 * wall, reported=reported) for wall in walls]
    return Row(contender=contender, costs=tuple(costs), failed=failed)


def documented(*cases: Case, inside: tuple[str, ...] = ("parse_s",)) -> dict[str, Any]:
    part = Part(name="nsys", title="A part", inside=inside, unit="events", measure=lambda _: iter(cases))
    return document(part, list(part.measure(None)))  # type: ignore[arg-type]


def case(events: int, *rows: Row, series: str = "s") -> Case:
    return Case(series=series, size=events * 100, events=events, rows=rows)


def found(cases: list[Case], **options: Any) -> dict[str, Any]:
    machine = {"cores": 2, "memory_gb": 1, "measured_at": "", "cpu": "", "system": "", "python": ""}
    chosen = {"rounds": 3, "timeout_s": 1.0, "memory_gb": 1.0}
    measured = {
        "machine": {**machine, "load_before": 0},
        "versions": {"library": "1"},
        "peers": {"peer": "2"},
        "options": chosen,
    }
    return {**documented(*cases, **options), **measured}


def test_ratios_are_those_of_medians() -> None:
    base, peer = row("base", 1.0, 9.0, 2.0), row("peer", 30.0, 5.0, 6.0, against="base", parse_cpu_s=1.0)
    first, second = documented(case(10, base, peer))["cases"][0]["rows"]
    assert first["ratios"] == {}
    assert second["ratios"] == {"wall_s": 3.0, "cpu_s": 3.0, "peak_mb": 3.0, "parse_cpu_s": 0.25}
    assert second["wall_s"] == {"median": 6.0, "min": 5.0, "max": 30.0}
    assert [run["wall_s"] for run in second["runs"]] == [30.0, 5.0, 6.0]


@pytest.mark.parametrize("failing", ["base", "peer"])
def test_failed_contenders_have_no_ratio(failing: str) -> None:
    costs = {"base": (1.0,), "peer": (2.0,), failing: ()}
    rows = [
        row(
            name,
            *costs[name],
            against="" if name == "base" else "base",
            failed="too slow" * (not costs[name]),
        )
        for name in ("base", "peer")
    ]
    shown = documented(case(10, *rows))["cases"][0]["rows"]
    assert [one["ratios"] for one in shown] == [{}, {}]


def test_only_figures_that_every_run_reported_are_shown() -> None:
    contender = row("a").contender
    runs = [
        Cost(wall_s=1, cpu_s=1, peak_mb=1, reported=reported)
        for reported in ({"x_s": 1, "y_s": 2}, {"x_s": 3})
    ]
    (shown,) = documented(case(10, Row(contender=contender, costs=tuple(runs))))["cases"][0]["rows"]
    assert shown["reported"] == {"x_s": {"median": 2, "min": 1, "max": 3}}


def test_exponents_are_fitted_over_the_sizes_of_a_series() -> None:
    cases = [case(n, row("linear", n / 10, parse_s=n * n / 1e4)) for n in (10, 100, 1000)]
    (fit,) = documented(*cases)["fits"]
    assert fit["events"] == [10, 100, 1000]
    assert fit["exponents"] == pytest.approx({"wall_s": 1, "cpu_s": 1, "parse_s": 2})


def test_series_are_fitted_separately_and_one_size_has_no_exponent() -> None:
    cases = [case(10, row("a", 1.0)), case(100, row("a", 1.0), series="t")]
    fits = documented(*cases)["fits"]
    assert [fit["series"] for fit in fits] == ["s", "t"]
    assert all(power is None for fit in fits for power in fit["exponents"].values())


def test_failed_sizes_are_excluded_from_the_fit() -> None:
    cases = [case(10, row("a", 1.0)), case(100, row("a", 10.0)), case(1000, row("a", failed="no"))]
    (fit,) = documented(*cases)["fits"]
    assert fit["events"] == [10, 100]
    assert fit["exponents"]["wall_s"] == pytest.approx(1)


def test_the_page_shows_medians_ratios_and_failures() -> None:
    rows = [row("base", 1.0, 2.0, 3.0), row("peer", 6.0, 6.0, against="base", failed="over the memory limit")]
    rows += [row("gone", failed="not installed", against="base")]
    written = page({"parts": {"p": found([case(10_000, *rows)])}}, source="results.json")
    assert "`results.json`" in written
    assert "### s: 1 MB, 10,000 events" in written
    assert "| base | 2 (1–3) | 4 (2–6) | 20 (10–30) | – | – | – |" in written
    assert "| peer | 6 | 12 | 60 | 3 | 3 | 3 |" in written
    assert "- peer: failed after 2 rounds: over the memory limit" in written
    assert "- gone: not installed" in written
    assert "library 1, peer 2." in written
    assert "Exponents" not in written


def test_reported_figures_are_shown_by_size() -> None:
    cases = [case(n, row("ask", 1.0, b_again_ms=n, b_first_ms=2 * n, b_kb=5)) for n in (10, 100)]
    written = page({"parts": {"p": found(cases, inside=())}}, source="results.json")
    assert "| b_first_ms | 20 | 200 | 1 |\n| b_again_ms | 10 | 100 | 1 |" in written
    assert "b_kb" not in written
    assert "library 1." in written


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (0.0, "0"), (0.00123, "0.00123"), (99.96, "100"), (4321.0, "4,321")]
)
def test_numbers_have_three_significant_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_zero_costs_have_no_ratio_and_no_exponent() -> None:
    assert ratio(1.0, 0.0) is None
    assert exponent([10, 100], [0.0, 1.0]) is None
