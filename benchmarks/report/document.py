"""What was measured, as JSON: every run, and the figures computed from them."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from benchmarks.report.figures import exponent, ratio, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.parts.part import Case, Part
    from benchmarks.runner import Row

SCHEMA = "tracekit.bench/1"
SECONDS = ("_s", "_ms", ", s", ", ms")
COSTS = ("wall_s", "cpu_s", "peak_mb")
PARSING = "parse_cpu_s"
"""What a parser tells of itself alone; its ratio is to all CPU seconds of the other's process."""


def document(part: Part, cases: Sequence[Case]) -> dict[str, Any]:
    """A part as JSON.

    Args:
        part: What was measured.
        cases: What came out so far.

    Returns:
        Cases with a row for each contender (`runs` as they came; `wall_s`, `cpu_s`, `peak_mb` and `told` as
        median, least and most; `ratios` of the medians to those of the contender `against`), and `fits`.
    """
    return {
        "title": part.title,
        "text": part.text,
        "unit": part.unit,
        "inside": list(part.inside),
        "cases": [_case(case) for case in cases],
        "fits": fits(cases),
    }


def _case(case: Case) -> dict[str, Any]:
    rows = {row.contender.name: _row(row) for row in case.rows}
    for row in rows.values():
        base = rows.get(row["against"], {})
        row["ratios"] = ratios(row, base) if base is not row else {}
    return {"series": case.series, "bytes": case.size, "events": case.events, "rows": list(rows.values())}


def _row(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "contender": row.contender.name,
        "does": row.contender.does,
        "against": row.contender.against,
        "failed": row.failed,
        "runs": [asdict(cost) for cost in row.costs],
    }
    if row.costs:
        found |= {name: spread([getattr(cost, name) for cost in row.costs]) for name in COSTS}
        always = [name for name in row.costs[0].told if all(name in cost.told for cost in row.costs)]
        found["told"] = {name: spread([cost.told[name] for cost in row.costs]) for name in always}
    return found


def ratios(row: dict[str, Any], base: dict[str, Any]) -> dict[str, float | None]:
    """The medians of a row, each divided by that of another; none where either was not measured.

    Args:
        row: A contender's figures.
        base: Those of the one it is compared with; empty where there is none.
    """
    measured = [name for name in COSTS if name in row and name in base]
    found = {name: ratio(row[name]["median"], base[name]["median"]) for name in measured}
    if found and PARSING in row["told"]:
        found[PARSING] = ratio(row["told"][PARSING]["median"], base["cpu_s"]["median"])
    return found


def fits(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """With which power of its events each contender's costs grow, over the sizes of each series."""
    found: list[dict[str, Any]] = []
    for series, sizes in groupby(sorted(cases, key=lambda case: case.series), key=lambda case: case.series):
        found += _fits(series, list(sizes))
    return found


def _fits(series: str, cases: list[Case]) -> Iterable[dict[str, Any]]:
    points: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for case in cases:
        for row in case.rows:
            if row.costs:
                points.setdefault(row.contender.name, []).append((case.events, _row(row)))
    for name, measured in points.items():
        events, rows = [count for count, _ in measured], [row for _, row in measured]
        powers = {
            cost: exponent(events, [row[cost]["median"] for row in rows]) for cost in ("wall_s", "cpu_s")
        }
        told = set.intersection(*(set(row["told"]) for row in rows))
        for each in sorted(one for one in told if one.endswith(SECONDS)):
            powers[each] = exponent(events, [row["told"][each]["median"] for row in rows])
        yield {"series": series, "contender": name, "events": events, "exponents": powers}
