"""The document as Markdown, for the terminal and for the page of the documentation."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

OPENING = Path(__file__).with_name("opening.md").read_text().strip()


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
    yield _where(part)
    for case in part["cases"]:
        size = f"{case['bytes'] / 1e6:,.4g} MB, {case['events']:,} {part['unit']}"
        yield f"### {case['series']}: {size}"
        yield table(*_costs(case, part["inside"]))
        yield from _tolds(case, part)
    if any(power is not None for fit in part["fits"] for power in fit["exponents"].values()):
        yield "### Exponents"
        yield table(*_powers(part))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A Markdown table; all but the first column are numbers.

    Example:
        >>> print(table(["name", "s"], [["a|b", "1"]]))
        | name | s |
        |---|---:|
        | a\|b | 1 |
    """
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    drawn = [f"| {' | '.join(row)} |" for row in [lines[0], *cells]]
    return "\n".join([drawn[0], f"|{'|'.join(lines[1])}|", *drawn[1:]])


def _where(part: dict[str, Any]) -> str:
    machine, options = part["machine"], part["options"]
    libraries = ", ".join(f"{name} {version}" for name, version in part["versions"].items())
    return (
        f"{machine['measured_at']}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}; load before {machine['load_before']}; "
        f"{options['rounds']} rounds; a run is ended after {options['timeout_s']:g} s or at "
        f"{options['memory_gb']:.3g} GB.\n\n{libraries}."
    )


def _costs(case: dict[str, Any], inside: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    told = [name for name in inside if any(name in row.get("told", {}) for row in case["rows"])]
    compared = any(row["ratios"] for row in case["rows"])
    against = ["wall ×", "CPU ×", "memory ×", "against"] if compared else []
    head = ["", "wall s", "CPU s", "peak MB", *told, *against, "what a run does"]
    return head, [_cost(row, told, compared=compared) for row in case["rows"]]


def _cost(row: dict[str, Any], told: Sequence[str], *, compared: bool) -> list[str]:
    if row["failed"] and not row["runs"]:
        blank = ["–"] * (3 + len(told) + 4 * compared)
        return [
            row["contender"],
            *blank,
            row["failed"] if "installed" in row["failed"] else f"failed: {row['failed']}",
        ]
    figures = [_spread(row[name]) for name in ("wall_s", "cpu_s")]
    inside = [_spread(row["told"][name]) if name in row["told"] else "–" for name in told]
    ratios = [_number(row["ratios"].get(name)) for name in ("wall_s", "cpu_s", "peak_mb")] if compared else []
    against = [row["against"] or "–"] if compared else []
    does = row["does"] + (f"; then failed: {row['failed']}" if row["failed"] else "")
    return [row["contender"], *figures, f"{row['peak_mb']['median']:,.0f}", *inside, *ratios, *against, does]


def _tolds(case: dict[str, Any], part: dict[str, Any]) -> Iterator[str]:
    """What processes told of themselves, where no column shows it."""
    if part["inside"]:
        return
    for row in case["rows"]:
        if row.get("told"):
            names = sorted(row["told"], key=lambda name: (name.rsplit("_", 1)[0], name))
            yield f"*{row['contender']}*"
            yield table(["", "median (least–most)"], [[name, _spread(row["told"][name])] for name in names])


def _powers(part: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    told = sorted({name for fit in part["fits"] for name in fit["exponents"] if name in part["inside"]})
    columns = ["wall_s", "cpu_s", *told]
    rows = []
    for series, fits in groupby(part["fits"], key=lambda fit: fit["series"]):
        for fit in fits:
            powers = [_number(fit["exponents"].get(name)) for name in columns]
            sizes = "–".join(f"{count:,}" for count in (min(fit["events"]), max(fit["events"])))
            rows.append([f"{fit['contender']} ({series})", *powers, sizes])
    return ["", *columns, part["unit"]], rows


def _spread(values: dict[str, float]) -> str:
    if values["min"] == values["max"]:
        return _number(values["median"])
    return f"{_number(values['median'])} ({_number(values['min'])}–{_number(values['max'])})"


def _number(value: float | None) -> str:
    """Three digits that count, and never less than whole ones."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
