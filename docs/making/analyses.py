"""One page for each analysis, and the index of the rules that give findings."""

from __future__ import annotations

import re

from tracekit.analysis import Analysis, available
from tracekit.render.plain import escape_prose
from tracekit.render.reference import grid, section

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
"""Headings of the page on other tools that are about an analysis."""
RULES = "rules.md"


def pages() -> dict[str, str]:
    """The index of the analyses, a page for each, and the index of rules: Markdown by path."""
    found = available()
    return {
        INDEX: _index(found),
        RULES: _rules(found),
        **{f"analyses/{one.name}.md": section(one, level=1) + _elsewhere(one) for one in found},
    }


_INDEX = """\
# Analyses

Every analysis is a pure function from a run to tables and findings. Its page is made of what it says of
itself; `tracekit analyze --list --format markdown` prints all of them. Times are integer nanoseconds, shares
are from 0 to 1, and what is unknown is missing, never 0.

{rows}
[Rules](rules.md) lists the codes of all findings. [Other tools](differences.md) says where a definition
departs from a known one, and why.
"""
_RULES = """\
# Rules

`tracekit findings` asks {count} rules. Each states when it gives a finding of its code, and why its
thresholds are what they are. A rule that lacks what it needs to judge says so, and does not count as passed.

{rows}
"""


def _index(found: list[Analysis]) -> str:
    rows = [(f"[`{one.name}`](analyses/{one.name}.md)", escape_prose(one.question)) for one in found]
    return _INDEX.format(rows=grid(("analysis", "answers"), rows))


def _elsewhere(one: Analysis) -> str:
    """Where else there is something about an analysis."""
    links = [f"[{title}](../differences.md#{_anchor(title)})" for title in OTHERS.get(one.name, ())]
    said = f"How other tools define this: {', '.join(links)}.\n\n" if links else ""
    return f"""
## In Python

```py
result = tracekit.analyze(tracekit.open("latest"), "{one.name}")
result.tables, result.findings, result.notes
```

{said}"""


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _rules(found: list[Analysis]) -> str:
    rows = [
        (
            f'<a id="{rule.code}"></a>`{rule.code}`',
            f"[`{one.name}`](analyses/{one.name}.md)",
            escape_prose(rule.states),
            escape_prose(rule.why),
        )
        for one in found
        for rule in sorted(one.rules, key=lambda rule: rule.code)
    ]
    return _RULES.format(count=len(rows), rows=grid(("code", "analysis", "condition", "reason"), rows))
