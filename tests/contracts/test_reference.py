"""The documentation page is what the analyses say of themselves."""

from __future__ import annotations

from pathlib import Path

from tracekit.analysis import available
from tracekit.render.reference import listing, page

PAGE = Path(__file__).parents[2] / "docs" / "analyses.md"


def test_the_page_is_generated() -> None:
    assert PAGE.read_text() == page(available()), (
        "run: tracekit analyze --list --format markdown > docs/analyses.md"
    )


def test_every_format_names_every_analysis_table_and_rule() -> None:
    for output_format in ("json", "csv", "markdown"):
        text = listing(available(), output_format).replace("\\", "")
        for one in available():
            assert one.name in text
            assert all(spec.name in text for spec in one.tables)
            assert all(rule.code in text for rule in one.rules)
    assert all(one.name in listing(available(), "table") for one in available())
