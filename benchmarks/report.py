"""Results as JSON: every run, medians, ratios and exponents, and the machine they were measured on."""

from __future__ import annotations

import math
import os
import platform
import statistics
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.parts import Case, Part
    from benchmarks.peers import Environment
    from benchmarks.runner import Row


SCHEMA = "tracekit.bench/2"
SECONDS = ("_s", "_ms", ", s", ", ms")
COSTS = ("wall_s", "cpu_s", "peak_mb")
PARSING = "parse_cpu_s"
"""CPU time of a parser alone; its ratio is to the CPU time of the other's whole process."""


def document(part: Part, cases: Sequence[Case]) -> dict[str, Any]:
    """Results of a part as JSON.

    Args:
        part: The part.
        cases: Its cases so far.

    Returns:
        Cases with a row per contender (`runs`; `wall_s`, `cpu_s`, `peak_mb` and `reported` as median, min and
        max; `ratios` of the medians to those of the contender `against`), and `fits`.
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
        always = [name for name in row.costs[0].reported if all(name in cost.reported for cost in row.costs)]
        found["reported"] = {name: spread([cost.reported[name] for cost in row.costs]) for name in always}
    return found


def ratios(row: dict[str, Any], base: dict[str, Any]) -> dict[str, float | None]:
    """Ratios of the medians of two rows, where both were measured.

    Args:
        row: A contender's figures.
        base: Those of the contender it is compared with; empty for none.
    """
    measured = [name for name in COSTS if name in row and name in base]
    found = {name: ratio(row[name]["median"], base[name]["median"]) for name in measured}
    if found and PARSING in row["reported"]:
        found[PARSING] = ratio(row["reported"][PARSING]["median"], base["cpu_s"]["median"])
    return found


def fits(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Exponent of each contender's costs in the number of events, over each series."""
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
        reported = set.intersection(*(set(row["reported"]) for row in rows))
        for each in sorted(one for one in reported if one.endswith(SECONDS)):
            powers[each] = exponent(events, [row["reported"][each]["median"] for row in rows])
        yield {"series": series, "contender": name, "events": events, "exponents": powers}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and extremes.

    Example:
        >>> spread([3.0, 1.0, 2.0])
        {'median': 2.0, 'min': 1.0, 'max': 3.0}
    """
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(value: float, base: float) -> float | None:
    """Ratio to a base; None if the base is 0.

    Example:
        >>> ratio(3.0, 2.0), ratio(1.0, 0.0)
        (1.5, None)
    """
    return value / base if base > 0 else None


def exponent(events: Sequence[float], costs: Sequence[float]) -> float | None:
    """Exponent of a cost in the number of events, by least squares in log-log space.

    Returns:
        1 for a linear cost; None without two sizes of positive cost.

    Example:
        >>> round(exponent([10, 100, 1000], [0.2, 2.0, 20.0]), 6), exponent([10], [1.0])
        (1.0, None)
    """
    pairs = [(math.log(x), math.log(y)) for x, y in zip(events, costs, strict=True) if x > 0 and y > 0]
    if len({x for x, _ in pairs}) < 2:
        return None
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope


LIBRARIES = ("tracekit-torch", "pyarrow", "numpy", "pandas", "msgspec", "isal")


def machine() -> dict[str, Any]:
    """CPU, memory, system and load of this machine; nothing that identifies it."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="minutes"),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Versions of tracekit and its libraries."""
    return {name: metadata.version(name) for name in LIBRARIES}


def peer_versions(environments: Mapping[str, Environment]) -> dict[str, str]:
    """Version of each peer, or why it is missing."""
    return {f"{name} (peer)": peer.version or peer.missing for name, peer in environments.items()}


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
