"""Output formats of `tracekit ab`."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.errors import clean
from tracekit.render.cells import envelope, escape, fenced, markdown_text
from tracekit.render.layout import table_text
from tracekit.runs.text import human

if TYPE_CHECKING:
    from tracekit.experiments.ab_model import Report
    from tracekit.stats.comparison import Comparison

COLUMNS = (
    Column("metric", "", "metric"),
    Column("base", "", "geometric mean over base runs"),
    Column("head", "", "geometric mean over head runs"),
    Column("ratio", "", "head over base"),
    Column("ci95", "", "95% confidence interval of the ratio, over all interim tests"),
    Column("mde", "", "smallest change these runs detect with 80% power"),
    Column("verdict", "", "verdict at the threshold"),
    Column("k", "count", "runs per side at the verdict"),
)
_WIDEST = 110
_SIGNS = {"regression": "❌ ", "improvement": "✅ ", "pass": "✅ "}


def as_json(report: Report) -> str:
    """One object: `{"schema": "tracekit.ab/1", "verdict": ..., "metrics": [...], ...}`."""
    return envelope("ab", **report.content()) + "\n"


def as_text(report: Report) -> str:
    """Render for a terminal."""
    said = [*_reasons(report), *_design(report), *(f"warning: {one}" for one in report.warnings)]
    parts = [*_wrapped(headline(report)), "", table_text(_rows(report), COLUMNS, limit=0)]
    parts += [line for text in said for line in _wrapped(text)]
    parts += ["", *_profiles(report), f"reproduce: {clean(report.reproduce)}"]
    return "\n".join(parts) + "\n"


def _wrapped(text: str) -> list[str]:
    width = min(shutil.get_terminal_size((100, 40)).columns, _WIDEST)
    return textwrap.wrap(clean(text), width, subsequent_indent="  ", break_on_hyphens=False)


def as_markdown(report: Report) -> str:
    """Render for a pull request."""
    lines = [f"## {_SIGNS.get(report.verdict, '')}{escape(headline(report))}", ""]
    lines += [markdown_text(_rows(report), COLUMNS)]
    lines += [f"- {escape(text)}" for text in _reasons(report)]
    lines += ["", "<details><summary>How it was measured</summary>", ""]
    texts = [*_design(report), *(f"warning: {one}" for one in report.warnings)]
    lines += [f"- {escape(text)}" for text in texts]
    lines += ["", "</details>", "", fenced(*_profiles(report), report.reproduce)]
    return "\n".join(lines)


def headline(report: Report) -> str:
    """The verdict in one line."""
    sides = f"{report.head.name} against {report.base.name}"
    if report.base.entry() | {"revision": ""} == report.head.entry() | {"revision": ""}:
        sides += ", the same commit"
    return f"{str(report.verdict).capitalize()}: {sides}"


def _rows(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "metric": one.name,
            "base": human(one.a, one.unit),
            "head": human(one.b, one.unit),
            "ratio": None if one.ratio is None else f"{one.ratio:.4g}",
            "ci95": None if one.ci95 is None else f"{one.ci95[0]:.4g} to {one.ci95[1]:.4g}",
            "mde": None if one.mde is None else human(one.mde, "share"),
            "verdict": str(one.verdict),
            "k": one.k,
        }
        for one in report.outcome.metrics
    ]


def _reasons(report: Report) -> list[str]:
    return [f"{one.name}: {one.reason} ({one.method})" for one in report.outcome.metrics]


def _design(report: Report) -> list[str]:
    design = report.request.design
    made, looks = len(report.outcome.blocks), ", ".join(str(look.k) for look in design.looks)
    warmup = f", after {design.warmup} warm-up" if design.warmup else ""
    parts = [
        f"{made} runs per side{warmup}, each a new process, in ABBA order, compared in pairs; "
        f"tests planned at {looks} runs; threshold {100 * design.threshold:g}%; "
        f"measured for {report.seconds:,.0f} s",
    ]
    if report.verdict == "cannot tell":
        parts.append(_more(report.outcome.metrics, design.max_k))
    if report.head.changes:
        count = len(report.head.changes.paths)
        parts.append(f"the head is the working tree, with {count} changed file{'s' * (count != 1)}")
    return parts


def _more(metrics: tuple[Comparison, ...], most: int) -> str:
    names = ", ".join(one.name for one in metrics if one.verdict == "cannot tell")
    return f"{names}: reduce other load, measure longer runs, or allow more runs (--max-repeat {2 * most})"


def _profiles(report: Report) -> list[str]:
    if {"base", "head"} - set(report.runs):
        return []
    return [f"tracekit diff {report.runs['base']} {report.runs['head']}"]
