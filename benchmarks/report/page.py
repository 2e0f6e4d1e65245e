"""The document as Markdown, for the terminal and for the page of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import told
from benchmarks.report.document import COSTS, PARSING
from benchmarks.report.text import number, spread, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OPENING = Path(__file__).with_name("opening.md").read_text().strip()
RATIOS = {"wall_s": "wall ×", "cpu_s": "CPU ×", "peak_mb": "memory ×", PARSING: "parse alone, CPU ×"}


def page(found: dict[str, Any], *, source: str) -> str:
    """The whole page.

    Args:
        found: Parts by name, each as `document` gives it, with its `machine`, `versions` and `options`.
        source: Where the JSON is.
    """
    pieces = [OPENING.format(source=source)]
    for part in found["parts"].values():
        pieces += sections(part)
    return "\n\n".join(pieces) + "\n"


def sections(part: dict[str, Any]) -> Iterator[str]:
    """A part: heading, how it was measured and where, a table for each input, and how costs grow."""
    yield f"## {part['title']}"
    yield part["text"]
    yield conditions(part)
    yield table(*_who(part["cases"]), numbers=False)
    for case in part["cases"]:
        yield f"### {case['series']}: {number(case['bytes'] / 1e6)} MB, {case['events']:,} {part['unit']}"
        yield table(*_costs(case, part["inside"]))
        yield from _failures(case)
    if not part["inside"]:
        yield from told.tables(part)
    elif any(power is not None for fit in part["fits"] for power in fit["exponents"].values()):
        yield "### Exponents"
        yield table(*_powers(part))


def conditions(part: dict[str, Any]) -> str:
    """Where and how a part was measured, in two paragraphs."""
    machine, options = part["machine"], part["options"]
    compared = any(row["against"] for case in part["cases"] for row in case["rows"])
    known = {**part["versions"], **(part["peers"] if compared else {})}
    libraries = ", ".join(f"{name} {version}" for name, version in known.items())
    return (
        f"{machine['measured_at']}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}; load before {machine['load_before']}; rounds: "
        f"{options['rounds']}; a run is ended after {options['timeout_s']:g} s or at "
        f"{options['memory_gb']:.3g} GB.\n\n{libraries}."
    )


def _who(cases: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    rows = {row["contender"]: row for case in cases for row in case["rows"]}
    if not any(row["against"] for row in rows.values()):
        return ["", "what a run does"], [[name, row["does"]] for name, row in rows.items()]
    who = [[name, row["against"] or "–", row["does"]] for name, row in rows.items()]
    return ["", "against", "what a run does"], who


def _costs(case: dict[str, Any], inside: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    names = [name for name in inside if any(name in row.get("told", {}) for row in case["rows"])]
    ratios = [name for name in RATIOS if any(name in row["ratios"] for row in case["rows"])]
    head = ["", "wall s", "CPU s", "peak MB", *names, *(RATIOS[name] for name in ratios)]
    return head, [_cost(row, names, ratios) for row in case["rows"]]


def _cost(row: dict[str, Any], names: Sequence[str], ratios: Sequence[str]) -> list[str]:
    if not row["runs"]:
        return [row["contender"], *["–"] * (len(COSTS) + len(names) + len(ratios))]
    costs = [spread(row[name]) for name in COSTS]
    inside = [spread(row["told"].get(name)) for name in names]
    return [row["contender"], *costs, *inside, *(number(row["ratios"].get(name)) for name in ratios)]


def _failures(case: dict[str, Any]) -> Iterator[str]:
    """Who did not finish, and why."""
    failed = [row for row in case["rows"] if row["failed"]]
    if failed:
        yield "\n".join(f"- {row['contender']}: {_why(row)}" for row in failed)


def _why(row: dict[str, Any]) -> str:
    why: str = row["failed"]
    if why.startswith("not installed"):
        return why
    rounds = f" after {len(row['runs'])} rounds" if row["runs"] else ""
    return f"failed{rounds}: {why}"


def _powers(part: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    inside = sorted({name for fit in part["fits"] for name in fit["exponents"] if name in part["inside"]})
    columns = ["wall_s", "cpu_s", *inside]
    rows = []
    for fit in part["fits"]:
        powers = [number(fit["exponents"].get(name)) for name in columns]
        sizes = "–".join(f"{count:,}" for count in (min(fit["events"]), max(fit["events"])))
        rows.append([f"{fit['contender']} ({fit['series']})", *powers, sizes])
    return ["", *columns, part["unit"]], rows
