"""Commands that read runs, as users ask them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import registry

if TYPE_CHECKING:
    from random import Random

HERE = "{folder}"
"""Stands in a word for an empty folder."""
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
    ("findings", "latest"),
    ("noise",),
    ("diff", "latest", "latest"),
    ("check", "--against", "fuzzed", "--label", "fuzzed"),
    ("report", "latest", "-o", f"{HERE}/report.html"),
    ("report", "latest", "--analyses", "ranks,overlap,integrity", "-o", f"{HERE}/report.html"),
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
_PLAIN = frozenset({"report", "rm", "export", "check"})
"""Commands of the list that do not take every format."""
_ANALYSES = 0.35
_QUERIES = 0.12
_LISTS = 0.08


def command(random: Random) -> tuple[str, ...]:
    """Words of a command line, the store's place left out."""
    kind, format_ = random.random(), ("--format", random.choice(_FORMATS))
    if kind < _ANALYSES:
        name = random.choice(registry.names(registry.ANALYSES))
        return ("analyze", "latest", name, *random.choice(_RANKS), *format_)
    if kind < _ANALYSES + _QUERIES:
        return ("query", random.choice(_SQL), *format_)
    if kind < _ANALYSES + _QUERIES + _LISTS:
        return ("runs", *format_)
    words = random.choice(_FIXED)
    return words if words[0] in _PLAIN else (*words, *format_)
