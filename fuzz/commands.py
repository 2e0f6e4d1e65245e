"""Random commands that read runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import registry

if TYPE_CHECKING:
    from random import Random

HERE = "{folder}"
"""Placeholder for an empty folder."""
_SQL = (
    "SELECT * FROM device_intervals",
    "SELECT * FROM host_intervals WHERE dur_ns > 1000 ORDER BY start_ns",
    "SELECT rank, step, name, sum(dur_ns) AS sum_ns FROM steps GROUP BY ALL",
    "SELECT h.name, d.* FROM device_intervals d JOIN host_intervals h ON h.row_id = d.op_row",
    "SUMMARIZE allocations",
    "SELECT count(*), max(value) FROM counters",
    "SELECT * FROM runs",
)
_FORMATS = ("table", "json", "csv", "markdown")
_RANKS = ((), (), (), ("--rank", "0"), ("--rank", "1"), ("--rank", "0-1"), ("--rank", "all"))
_FIXED = (
    ("show", "latest"),
    ("noise",),
    ("check", "--against", "fuzzed", "--label", "fuzzed"),
    ("rm", "latest", "--yes"),
    ("gc",),
    ("verify",),
    ("verify", "latest", "--quick"),
    ("export", "latest", "-o", "-"),
    ("export", "latest", "--steps", "1", "-o", "-"),
    ("export", "latest", "-o", f"{HERE}/trace.json.gz"),
    ("export", "latest", "--to", "csv", "-o", f"{HERE}/csv"),
    ("export", "latest", "--to", "csv", "-o", f"{HERE}/csv.zip"),
    ("export", "latest", "--to", "parquet", "-o", f"{HERE}/parquet"),
)
_SLOW = (
    ("findings", "latest"),
    ("analyze", "latest"),
    ("diff", "latest", "latest"),
    ("report", "latest", "-o", f"{HERE}/report.html"),
    ("report", "latest", "--analyses", "ranks,overlap,integrity", "-o", f"{HERE}/report.html"),
)
"""Commands that run many analyses and take up to a second."""
_PLAIN = frozenset({"report", "rm", "export", "check"})
"""Commands without `--format`."""
_SHARES = {"slow": 2, "query": 8, "runs": 8, "fixed": 35, "analysis": 47}
"""Percentages of commands."""


def command(random: Random) -> tuple[str, ...]:
    """Arguments of a command, without `--store`."""
    (kind,) = random.choices([*_SHARES], [*_SHARES.values()])
    words: tuple[str, ...]
    if kind == "analysis":
        words = (
            "analyze",
            "latest",
            random.choice(registry.names(registry.ANALYSES)),
            *random.choice(_RANKS),
        )
    elif kind == "query":
        words = ("query", random.choice(_SQL))
    elif kind == "runs":
        words = ("runs",)
    else:
        words = random.choice(_SLOW if kind == "slow" else _FIXED)
    return words if words[0] in _PLAIN else (*words, "--format", random.choice(_FORMATS))
