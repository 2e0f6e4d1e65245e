"""Menu: pages about time are ordered from the overview to the causes."""

from __future__ import annotations

from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.site import Section


def test_pages_about_time_go_from_the_whole_to_its_causes() -> None:
    names = [page.name for page in load_pages().values() if page.section is Section.TIME]
    assert names == [
        "timeline",
        "steps",
        "host_breakdown",
        "serving",
        "idle_gaps",
        "zero_grad",
        "overlap",
        "critical_path",
    ]
