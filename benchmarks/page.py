"""Results as Markdown, for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import COSTS, PARSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


TEXT = Path(__file__).parent / "text"
OPENING = (TEXT / "opening.md").read_text().strip()
CLUSTER = (TEXT / "scale.md").read_text().strip()
"""Costs on a cluster, measured by `scale_costs`, `scale` and `ranks`."""
RATIOS = {"wall_s": "wall ×", "cpu_s": "CPU ×", "peak_mb": "memory ×", PARSING: "parse alone, CPU ×"}


def page(found: dict[str, Any], *, source: str) -> str:
    """Write the page.

    Args:
        found: Parts by name, each from `document`, with its `machine`, `versions` and `options`.
        source: Name of the JSON file.
    """
    pieces = [OPENING.format(source=source)]
    for part in found["parts"].values():
        pieces += sections(part)
    pieces.append(CLUSTER)
    return "\n\n".join(pieces) + "\n"


def sections(part: dict[str, Any]) -> Iterator[str]:
    """Sections of a part: method, machine, a table per input, and exponents."""
    yield f"## {part['title']}"
    yield part["text"]
    yield conditions(part)
    yield table(*_contenders(part["cases"]), numbers=False)
    for case in part["cases"]:
        yield f"### {case['series']}: {number(case['bytes'] / 1e6)} MB, {case['events']:,} {part['unit']}"
        yield table(*_costs(case, part["inside"]))
        yield from _failures(case)
    if not part["inside"]:
        yield from reported_tables(part)
    elif any(power is not None for fit in part["fits"] for power in fit["exponents"].values()):
        yield "### Exponents"
        yield table(*_powers(part))


def conditions(part: dict[str, Any]) -> str:
    """Machine, options and versions of a part, in two paragraphs."""
    machine, options = part["machine"], part["options"]
    compared = any(row["against"] for case in part["cases"] for row in case["rows"])
    versions = {**part["versions"], **(part["peers"] if compared else {})}
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{machine['measured_at']}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}; load before {machine['load_before']}; rounds: "
        f"{options['rounds']}; limits of a run: {options['timeout_s']:g} s, "
        f"{options['memory_gb']:.3g} GB.\n\n{libraries}."
    )


def _contenders(cases: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    rows = {row["contender"]: row for case in cases for row in case["rows"]}
    if not any(row["against"] for row in rows.values()):
        return ["", "what a run does"], [[name, row["does"]] for name, row in rows.items()]
    described = [[name, row["against"] or "–", row["does"]] for name, row in rows.items()]
    return ["", "against", "what a run does"], described


def _costs(case: dict[str, Any], inside: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    names = [name for name in inside if any(name in row.get("reported", {}) for row in case["rows"])]
    ratios = [name for name in RATIOS if any(name in row["ratios"] for row in case["rows"])]
    head = ["", "wall s", "CPU s", "peak MB", *names, *(RATIOS[name] for name in ratios)]
    return head, [_cost(row, names, ratios) for row in case["rows"]]


def _cost(row: dict[str, Any], names: Sequence[str], ratios: Sequence[str]) -> list[str]:
    if not row["runs"]:
        return [row["contender"], *["–"] * (len(COSTS) + len(names) + len(ratios))]
    costs = [spread(row[name]) for name in COSTS]
    inside = [spread(row["reported"].get(name)) for name in names]
    return [row["contender"], *costs, *inside, *(number(row["ratios"].get(name)) for name in ratios)]


def _failures(case: dict[str, Any]) -> Iterator[str]:
    """Contenders that failed, with reasons."""
    failed = [row for row in case["rows"] if row["failed"]]
    if failed:
        yield "\n".join(f"- {row['contender']}: {_reason(row)}" for row in failed)


def _reason(row: dict[str, Any]) -> str:
    reason: str = row["failed"]
    if reason.startswith("not installed"):
        return reason
    rounds = f" after {len(row['runs'])} rounds" if row["runs"] else ""
    return f"failed{rounds}: {reason}"


def _powers(part: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    inside = sorted({name for fit in part["fits"] for name in fit["exponents"] if name in part["inside"]})
    columns = ["wall_s", "cpu_s", *inside]
    rows = []
    for fit in part["fits"]:
        powers = [number(fit["exponents"].get(name)) for name in columns]
        sizes = "–".join(f"{count:,}" for count in (min(fit["events"]), max(fit["events"])))
        rows.append([f"{fit['contender']} ({fit['series']})", *powers, sizes])
    return ["", *columns, part["unit"]], rows


HIDDEN = ("_kb",)
"""Suffixes of figures that only the JSON contains."""


def reported_tables(part: dict[str, Any]) -> Iterator[str]:
    """A heading and a table of reported figures per contender: a row per figure, a column per size."""
    for fit in part["fits"]:
        name, series = fit["contender"], fit["series"]
        cases = [case for case in part["cases"] if case["series"] == series]
        rows = [row for case in cases for row in case["rows"] if row["contender"] == name and row["runs"]]
        figures = sorted(
            {one for row in rows for one in row["reported"] if not one.endswith(HIDDEN)}, key=_page_order
        )
        if figures:
            yield f"### {series}: {name}"
            head = ["", *(f"{count:,} {part['unit']}" for count in fit["events"]), "exponent"]
            yield table(head, [_line(figure, rows, fit) for figure in figures])


def _line(figure: str, rows: list[dict[str, Any]], fit: dict[str, Any]) -> list[str]:
    return [
        figure,
        *(spread(row["reported"].get(figure)) for row in rows),
        number(fit["exponents"].get(figure)),
    ]


def _page_order(figure: str) -> tuple[str, bool]:
    """Sort key: by page, the first request before the second."""
    return figure.replace("_again_", "_first_"), "_again_" in figure


def number(value: float | None) -> str:
    """Format with three significant digits, or without decimals from 100.

    Example:
        >>> number(1234.5), number(0.01234), number(None)
        ('1,234', '0.0123', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: dict[str, float] | None) -> str:
    """Format median (min–max) of several runs, or the single value.

    Example:
        >>> spread({"median": 2.0, "min": 1.5, "max": 3.0}), spread({"median": 2.0, "min": 2.0, "max": 2.0})
        ('2 (1.5–3)', '2')
    """
    if values is None:
        return "–"
    middle = number(values["median"])
    if values["min"] == values["max"]:
        return middle
    return f"{middle} ({number(values['min'])}–{number(values['max'])})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    r"""Write a Markdown table.

    Args:
        head: Column names.
        rows: Cells, unescaped.
        numbers: Whether all columns but the first are numbers.

    Example:
        >>> print(table(["name", "s"], [["a|b", "1"]]))
        | name | s |
        |---|---:|
        | a\|b | 1 |
    """
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in [head, *cells]]
    side = "---:" if numbers else "---"
    return "\n".join([lines[0], f"|{'|'.join(['---', *[side] * (len(head) - 1)])}|", *lines[1:]])
