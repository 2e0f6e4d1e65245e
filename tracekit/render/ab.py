"""Report of `tracekit ab`: two commits measured against each other."""

from __future__ import annotations

from operator import attrgetter

from tracekit.analysis import Column
from tracekit.errors import clean
from tracekit.experiments.ab_model import Report
from tracekit.render import document as doc
from tracekit.render.cells import json_text
from tracekit.runs.text import human
from tracekit.stats.decide import change


def _format_ratios(*ratios: float | None) -> str | None:
    return None if None in ratios else " to ".join(f"{ratio:.4g}" for ratio in ratios)


_INTERVAL = "95% confidence interval of the ratio, over all interim tests"
_COLUMNS: tuple[doc.Shown, ...] = (
    (Column("metric", "", "metric"), attrgetter("name")),
    (Column("base", "", "geometric mean over base runs"), lambda metric: human(metric.a, metric.unit)),
    (Column("head", "", "geometric mean over head runs"), lambda metric: human(metric.b, metric.unit)),
    (Column("ratio", "", "head over base"), lambda metric: _format_ratios(metric.ratio)),
    (Column("ci95", "", _INTERVAL), lambda metric: _format_ratios(*(metric.ci95 or [None]))),
    (
        Column("mde", "", "smallest change these runs detect with 80% power"),
        lambda metric: None if metric.mde is None else human(metric.mde, "share"),
    ),
    (Column("verdict", "", "verdict at the threshold"), lambda metric: str(metric.verdict)),
    (Column("k", "count", "runs per side at the verdict"), attrgetter("k")),
)
_MAX_WIDTH = 110
_SIGNS = {"regression": "❌ ", "improvement": "✅ ", "pass": "✅ "}


def render(report: Report, output_format: str) -> str:
    """Render in one of the formats of reports; JSON is `{"schema": "tracekit.ab/1", "verdict": ..., ...}`."""
    if output_format == "json":
        return json_text("ab", **report.content())
    return doc.write(output_format, _blocks(report))


def _blocks(report: Report) -> list[doc.Block]:
    width = doc.terminal_width(_MAX_WIDTH)
    reasons = [f"{metric.name}: {metric.reason} ({metric.method})" for metric in report.outcome.metrics]
    if report.median_change is not None:
        reasons.append(f"median step: {change(report.median_change)}, not judged")
    reasons += [f"{name}: only one side measured it" for name in report.outcome.one_sided]
    design = [*_design(report), *(f"warning: {warning}" for warning in report.warnings)]
    sides = report.runs.keys() >= {"base", "head"}
    compare = [f"tracekit diff {report.runs['base']} {report.runs['head']}"] if sides else []
    return [
        doc.Heading(headline(report), _SIGNS.get(report.verdict, ""), width=width),
        doc.TableBlock(doc.Table.of("metrics", "", report.outcome.metrics, *_COLUMNS)),
        doc.Raw(
            text=doc.write_text(doc.Items([*reasons, *design], indent="", width=width)),
            markdown=doc.write_markdown(
                doc.Items(reasons), doc.Fold("How it was measured", [doc.Items(design)])
            ),
        ),
        doc.Raw(
            text="".join(f"{line}\n" for line in [*compare, f"reproduce: {clean(report.reproduce)}"]),
            markdown=doc.fence_commands(*compare, report.reproduce),
        ),
    ]


def headline(report: Report) -> str:
    """Return the verdict in one line."""
    sides = f"{report.head.name} against {report.base.name}"
    if report.base.entry() | {"revision": ""} == report.head.entry() | {"revision": ""}:
        sides += ", the same commit"
    return f"{str(report.verdict).capitalize()}: {sides}"


def _design(report: Report) -> list[str]:
    design = report.request.design
    pairs, looks = len(report.outcome.blocks), ", ".join(str(look.k) for look in design.looks)
    warmup = f", after {design.warmup} warm-up" if design.warmup else ""
    parts = [
        f"{pairs} runs per side{warmup}, each a new process, in ABBA order, compared in pairs; "
        f"tests planned at {looks} runs; threshold {100 * design.threshold:g}%; "
        f"measured for {report.seconds:,.0f} s",
    ]
    if report.verdict == "cannot tell":
        names = ", ".join(metric.name for metric in report.outcome.metrics if metric.verdict == "cannot tell")
        more = f"allow more runs (--max-repeat {2 * design.max_k})"
        parts.append(f"{names}: reduce other load, measure longer runs, or {more}")
    if report.head.changes:
        count = len(report.head.changes.paths)
        parts.append(f"the head is the working tree, with {count} changed file{'s' * (count != 1)}")
    return parts
