"""Random commands that read runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import registry
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence
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
APART = ("--timeout", "60")
"""Options of queries in a process of their own, which takes as long to start as ten inputs."""
_FORMATS = ("table", "json", "csv", "markdown")
_RANKS = ((), (), (), ("--rank", "0"), ("--rank", "1"), ("--rank", "0-1"), ("--rank", "all"))
_OF_METADATA = (
    ("runs",),
    ("runs",),
    ("show", "latest"),
    ("noise",),
    ("check", "--against", "fuzzed", "--label", "fuzzed"),
    ("rm", "latest", "--yes"),
    ("gc",),
)
_OF_TABLES = (
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
_SHARES = {
    False: {"slow": 1, "query": 9, "metadata": 60, "tables": 15, "analysis": 15},
    True: {"slow": 1, "query": 15, "metadata": 6, "tables": 28, "analysis": 50},
}
"""Percentages of commands, by whether a table is damaged."""


def command(random: Random, table: str = "", analyses: Sequence[str] = ()) -> tuple[str, ...]:
    """Arguments of a command, without `--store`.

    Args:
        random: Random numbers.
        table: Damaged table, which most commands read; empty if the metadata of the run are damaged.
        analyses: Analyses that read the table; all by default.
    """
    shares = _SHARES[table in TABLES]
    (kind,) = random.choices([*shares], [*shares.values()])
    words: tuple[str, ...]
    if kind == "analysis":
        name = random.choice(analyses or registry.names(registry.ANALYSES))
        words = ("analyze", "latest", name, *random.choice(_RANKS))
    elif kind == "query":
        statement = random.choice([text for text in _SQL if table in text])
        words = ("query", statement, *(APART if random.random() < 0.1 else ()))
    else:
        of_kind = {"slow": _SLOW, "metadata": _OF_METADATA, "tables": _OF_TABLES}
        words = random.choice(of_kind[kind])
    return words if words[0] in _PLAIN else (*words, "--format", random.choice(_FORMATS))
