"""Report of `tracekit ab`: two commits or settings measured against each other."""

from __future__ import annotations

from operator import attrgetter

from tracekit.analysis import Column
from tracekit.errors import clean
from tracekit.experiments.ab_model import Commit, Report
from tracekit.render import ci
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
_TONES = {"regression": "bad", "improvement": "good", "pass": "good"}


def render(report: Report, output_format: str) -> str:
    """Render in a format of verdicts; JSON is `{"schema": "tracekit.ab/1", "verdict": ..., ...}`."""
    match output_format:
        case "json":
            return json_text("ab", **report.content())
        case "html" | "junit" | "github":
            return _for_ci(report).write(output_format)
    return doc.write(output_format, _blocks(report))


def _for_ci(report: Report) -> ci.Report:
    """Return the report with a case per metric, and an annotation per regression or open metric, or one."""
    metrics, one_sided, title = report.outcome.metrics, report.outcome.one_sided, headline(report)
    notice = ci.annotate("notice", "tracekit", f"{title}. Reproduce: {report.reproduce}")
    return ci.Report(
        command="tracekit ab",
        headline=title,
        tone=_TONES.get(report.verdict, ""),
        metrics=_metric_table(report),
        reasons=_reasons(report),
        notes=_notes(report),
        further=[("Break down the difference", _differences(report))],
        reproduce=report.reproduce,
        cases=ci.make_cases(f"{report.head.name} against {report.base.name}", metrics, one_sided),
        annotations=ci.annotate_metrics(report.head.name, metrics, one_sided) or [notice],
    )


def _reasons(report: Report) -> list[str]:
    reasons = [f"{metric.name}: {metric.reason} ({metric.method})" for metric in report.outcome.metrics]
    if report.median_change is not None:
        reasons.append(f"median step: {change(report.median_change)}, not judged")
    return [*reasons, *ci.explain_one_sided(report.outcome.one_sided)]


def _notes(report: Report) -> list[str]:
    return [*_design(report), *(f"warning: {warning}" for warning in report.warnings)]


def _differences(report: Report) -> list[str]:
    sides = report.runs.keys() >= {"base", "head"}
    return [f"tracekit diff {report.runs['base']} {report.runs['head']}"] if sides else []


def _metric_table(report: Report) -> doc.Table:
    return doc.Table.of("metrics", "", report.outcome.metrics, *_COLUMNS)


def _blocks(report: Report) -> list[doc.Block]:
    width = doc.terminal_width(_MAX_WIDTH)
    reasons, design, compare = _reasons(report), _notes(report), _differences(report)
    return [
        doc.Heading(headline(report), _SIGNS.get(report.verdict, ""), width=width),
        doc.TableBlock(_metric_table(report)),
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
        sides += ", the same commit" if isinstance(report.base, Commit) else ", the same setting"
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
    if report.undecided:
        more = (
            f"; or add runs: the same command with --max-repeat {report.needed_runs}, while code and "
            "environment are the same"
        )
        advice = f"reduce other load, or measure longer runs{more * bool(report.needed_runs)}"
        parts.append(f"{', '.join(metric.name for metric in report.undecided)}: {advice}")
    if report.head.changes:
        count = len(report.head.changes.paths)
        parts.append(f"the head is the working tree, with {count} changed file{'s' * (count != 1)}")
    return parts
