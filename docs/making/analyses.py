"""Generated pages: one per analysis, and an index of the rules."""

from __future__ import annotations

import re
from pathlib import Path

from tracekit.analysis import Analysis, available
from tracekit.render.cells import escape_prose, grid
from tracekit.render.reference import section

IMAGES = Path(__file__).parents[1] / "images"
INDEX = "analyses.md"
OTHERS = {
    "gpu_breakdown": ("HolisticTraceAnalysis", "TraceLens", "TorchBench"),
    "idle_gaps": ("HolisticTraceAnalysis", "nsys stats and its expert rules"),
    "kernels": ("nsys stats and its expert rules",),
    "launch_latency": ("HolisticTraceAnalysis",),
    "ops": ("torch.profiler's key_averages()",),
    "overlap": ("HolisticTraceAnalysis", "TraceLens"),
    "pinned_memory": ("nsys stats and its expert rules",),
    "steps": ("TensorBoard plugin of PyTorch Profiler",),
    "utilization": ("Utilization",),
}
"""Headings in the page on other tools, by analysis."""
RULES = "rules.md"


def pages() -> dict[str, str]:
    """Return the index of analyses, their pages, and the index of rules: Markdown by path."""
    found = available()
    return {
        INDEX: _index(found),
        RULES: _rules(found),
        **{f"analyses/{one.name}.md": section(one, level=1) + _elsewhere(one) for one in found},
    }


_INDEX = """\
# Analyses

Every analysis is a pure function from a run to tables and findings. The pages are generated from their
metadata; `tracekit analyze --list --format markdown` prints them. Times are integer nanoseconds, shares are
between 0 and 1, and unknown values are missing, never 0.

{rows}
[Rules](rules.md) lists the codes of all findings. [Other tools](differences.md) explains differences of the
definitions.
"""
_RULES = """\
# Rules

`tracekit findings` checks {count} rules. Each documents the condition of its finding, and the reason for its
thresholds. Rules with missing data are reported as skipped.

{rows}
"""


def _index(found: list[Analysis]) -> str:
    rows = [(f"[`{one.name}`](analyses/{one.name}.md)", escape_prose(one.question)) for one in found]
    return _INDEX.format(rows=grid(("analysis", "question"), rows))


def _elsewhere(one: Analysis) -> str:
    """Return links to related sections for an analysis."""
    links = [f"[{title}](../differences.md#{_anchor(title)})" for title in OTHERS.get(one.name, ())]
    said = f"How other tools define this: {', '.join(links)}.\n\n" if links else ""
    name = one.name.replace("_", "-")
    shown = (
        f"\n## In the dashboard\n\n![{one.title}](../images/{name}.png#only-light)\n"
        f"![{one.title}](../images/{name}-dark.png#only-dark)\n"
    )
    return f"""{shown if (IMAGES / f"{name}.png").is_file() else ""}
## In Python

```py
result = tracekit.analyze(tracekit.open("latest"), "{one.name}")
result.tables, result.findings, result.notes
```

{said}"""


def anchors() -> dict[str, str]:
    """Return the page of each analysis on the site by its heading in the repository's `analyses.md`."""
    return {f"{INDEX}#{_anchor(one.title)}": f"analyses/{one.name}.md" for one in available()}


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _rules(found: list[Analysis]) -> str:
    rows = [
        (
            f'<a id="{rule.code}"></a>`{rule.code}`',
            f"[`{one.name}`]({INDEX}#{_anchor(one.title)})",
            escape_prose(rule.condition),
            escape_prose(rule.reason),
        )
        for one in found
        for rule in sorted(one.rules, key=lambda rule: rule.code)
    ]
    return _RULES.format(count=len(rows), rows=grid(("code", "analysis", "condition", "reason"), rows))
