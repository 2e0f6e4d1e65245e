"""Generated pages of the documentation are what commands, analyses and tables say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.making.site import repository_pages
from tracekit.analysis import available
from tracekit.recording import changes
from tracekit.render.reference import list_analyses, page

DOCS = Path(__file__).parents[2] / "docs"
PAGES = repository_pages()


@pytest.mark.parametrize("path", PAGES)
def test_generated_pages_are_current(path: str) -> None:
    assert (DOCS / path).read_text() == PAGES[path], "run: just docs"


def test_the_page_links_each_analysis_to_its_heading_and_keeps_code_as_code() -> None:
    text = page(available())
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    linked = [line.split("](#")[1].split(")")[0] for line in text.splitlines() if "](#" in line]
    assert linked == [heading.lower().replace(" ", "-").replace(",", "") for heading in headings]
    assert "\\`" not in text
    assert all(line.count("`") % 2 == 0 for line in text.splitlines() if not line.startswith("```"))


def test_the_page_names_the_changes_that_follow_the_advice_of_rules() -> None:
    text = page(available())
    codes = {rule.code for one in available() for rule in one.rules}
    for name, change in changes.available().items():
        assert (f"| `{name}` | `{change.code}` | `" in text) is bool(codes & {*change.answers}), name


def test_every_format_names_every_analysis_table_and_rule() -> None:
    for output_format in ("json", "csv", "markdown"):
        text = list_analyses(available(), output_format).replace("\\", "")
        for one in available():
            assert one.name in text
            assert all(spec.name in text for spec in one.tables)
            assert all(rule.code in text for rule in one.rules)
    assert all(one.name in list_analyses(available(), "table") for one in available())
