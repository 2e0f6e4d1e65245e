"""Gate result as one self-contained HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.errors import ExitCode
from tracekit.render import check_words as words
from tracekit.render.cells import clean
from tracekit.render.check_causes import causes
from tracekit.render.diff_tables import Table
from tracekit.render.page import folding, page

if TYPE_CHECKING:
    from tracekit.checking.model import Gate

_TEMPLATE = "check.html.j2"
_TONES = {
    ExitCode.OK: "good",
    ExitCode.REGRESSION: "bad",
    ExitCode.NOT_COMPARABLE: "bad",
}


def as_html(gate: Gate) -> str:
    """Render as an HTML page that follows the reader's light or dark theme."""
    return page(_TEMPLATE, _content(gate))


def _content(gate: Gate) -> dict[str, Any]:
    metrics = Table("metrics", "Metrics", words.COLUMNS, words.rows(gate))
    fields = Table("fields", "Differences of the runs", words.FIELDS, words.fields(gate))
    return {
        "headline": clean(words.headline(gate)),
        "tone": _TONES.get(gate.exit_code, ""),
        "sides": [clean(words.sides(each)) for each in gate.configurations],
        "metrics": [folding(metrics, limit=0, unfolded=True)] if metrics.rows else [],
        "reasons": [clean(line) for line in words.reasons(gate)],
        "causes": [(clean(text), folding(one, limit=0, unfolded=True)) for text, one in causes(gate)],
        "fields": [folding(fields, limit=0, unfolded=True)] if fields.rows else [],
        "notes": [clean(note) for note in words.notes(gate)],
        "commands": [
            ("Break down the difference", [clean(line) for line in words.differences(gate)]),
            ("Find the commit", [clean(line) for line in words.searches(gate)]),
            ("Reproduce", [clean(words.command(gate))]),
        ],
    }
