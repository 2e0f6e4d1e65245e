"""A comparison as Markdown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.render.diffs import cause, compared, group, judged, metric, refused, side
from tracekit.diff.model import Verdict
from tracekit.render.diff import as_markdown
from tracekit.render.document import MAX_BYTES

WIDE = "µ|`<b>_*" * 60


@pytest.mark.parametrize(
    ("verdict", "beside", "sign"),
    [
        (Verdict.PASS, Verdict.PASS, "✅ "),
        (Verdict.PASS, Verdict.REGRESSION, "⚠️ "),
        (Verdict.IMPROVEMENT, Verdict.REGRESSION, "⚠️ "),
        (Verdict.CANNOT_TELL, Verdict.PASS, ""),
        (Verdict.REGRESSION, Verdict.REGRESSION, "❌ "),
    ],
)
def test_no_tick_stands_above_a_regression(verdict: Verdict, beside: Verdict, sign: str) -> None:
    first = as_markdown(judged(verdict, metric("device_peak", beside))).splitlines()[0]
    assert first.startswith(f"## {sign}{verdict}")


@pytest.mark.parametrize("name", ["a`b", "a```b", "x\n```\n<script>alert(1)</script>", "a b"])
def test_nothing_in_a_name_ends_the_block_of_the_command(name: str) -> None:
    for found in (compared(base=side(name)), replace(refused("gpu"), base=side(name))):
        lines = as_markdown(found).rstrip().splitlines()
        fence = lines[-1]
        assert set(fence) == {"`"}
        assert lines[-3] == f"{fence}sh"
        assert fence not in lines[-2]
        assert lines[-2].startswith("tracekit diff ")


def test_metrics_of_both_units_share_a_table_with_interval_and_detectable_effect() -> None:
    text = as_markdown(judged(Verdict.PASS, metric("device_peak", Verdict.PASS)))
    head = "| metric | base | head | change | 95% interval | least detectable | verdict | basis |"
    assert head in text
    assert "| step\\_time | 1.05 ms | 1.05 ms | 0.0% | -1.0% to +1.0% | 2.0% | pass |" in text
    assert "| device\\_peak | 1.00 MiB | 1.00 MiB |" in text


def test_a_section_too_large_does_not_take_the_smaller_ones_with_it() -> None:
    groups = tuple(group(f"{WIDE}{n}", rate=1) for n in range(600))
    causes = tuple(cause(f"{n}{WIDE}", WIDE, rate=1) for n in range(600))
    text = as_markdown(compared(groups=groups, causes=causes, warnings=("mind this",)), limit=600)
    assert len(text.encode()) < MAX_BYTES
    assert "Matching of base and head" in text
    assert "2 more sections omitted; see `--format html`" in text
    assert "- mind this" in text


def test_warnings_stand_above_the_tables() -> None:
    text = as_markdown(compared(warnings=("the sides were not alternated",)))
    assert text.index("the sides were not alternated") < text.index("### Metrics")


def test_details_close_and_leave_blank_lines_for_the_tables() -> None:
    text = as_markdown(compared())
    assert text.count("<details>") == text.count("</details>") > 0
    for part in text.split("</summary>")[1:]:
        assert part.startswith("\n\n")


def test_rows_that_are_not_shown_are_counted() -> None:
    text = as_markdown(compared(causes=tuple(cause(f"op_{n}", rate=n + 1) for n in range(40))))
    top = text.split("### Top causes")[1].split("<details>")[0]
    assert top.count("| op\\_") == 5
    assert "35 more rows" in top
    assert "15 more rows" in text.split("Causes: lines of the work ledger")[1]


def test_no_limit_means_all_rows() -> None:
    many = compared(causes=tuple(cause(f"op_{n}", rate=n + 1) for n in range(40)))
    everything = as_markdown(many, limit=0).split("Causes: lines of the work ledger")[1]
    assert everything.count("| op\\_") == 40
    assert "more rows" not in everything
