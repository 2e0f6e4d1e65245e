"""Overview page: what bounds the run, findings, key numbers, time breakdown, integrity and metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Result
from tracekit.analysis.kernel_names import brief
from tracekit.errors import clean
from tracekit.runs.meta import Git, RunMeta

from ...blocks import block
from ...components.charts import Tile
from ...components.links import gpu_names, source_files
from ...components.text import sentence, with_code
from ...site import Context, Page, Section, View
from .. import key_numbers
from ..key_numbers import compare_with_baseline, tile_blocks, tiles_with_baseline
from ..time_breakdown import show_breakdown
from . import findings
from .findings import FIRST, FOR_VERDICT, start_fast_analyses

_SETTINGS = ("mode", "level", "batch_size", "resolution", "dtype", "device")
_MAX_CHARS = 72


def list_facts(meta: RunMeta) -> list[tuple[str, str]]:
    """Return the known metadata by name.

    Args:
        meta: The run's metadata.
    """
    facts = {
        "Workload": _workload(meta.workload),
        "Label": meta.label or "",
        "Commit": _commit(meta.git),
        "GPU": "" if meta.fingerprint.get("device") == "cpu" else gpu_names(meta),
        "torch": str(meta.environment.get("torch") or ""),
        "CUDA": str(meta.environment.get("cuda") or ""),
        "Ranks": _ranks(meta.fingerprint),
        "Command": " ".join(meta.command),
        "Recorded": meta.created_at.replace("T", " ")[:16] if meta.collector.name != "import" else "",
        "Imported from": source_files(meta),
    }
    return [(name, clean(text)) for name, text in facts.items() if text]


def show_metadata(meta: RunMeta) -> Component:
    """Show the metadata."""
    pairs = []
    for name, text in list_facts(meta):
        shown = brief(text, _MAX_CHARS) if len(text) > _MAX_CHARS else text
        pairs.append(html.Div([html.Dt(name), html.Dd(shown, title=text[:2_000])]))
    return html.Dl(pairs, className="tk-facts")


def _workload(workload: Mapping[str, Any] | None) -> str:
    if not workload:
        return ""
    words = [
        f"{name.replace('_', ' ')} {workload[name]}" for name in _SETTINGS if workload.get(name) is not None
    ]
    return ", ".join([str(workload.get("name", "")), *words])


def _commit(git: Git | None) -> str:
    if git is None:
        return ""
    branch = f" on {git.branch}" if git.branch else ""
    return git.sha[:10] + branch + (", with uncommitted changes" if git.dirty else "")


def _ranks(fingerprint: Mapping[str, Any]) -> str:
    size = fingerprint.get("world_size")
    return str(size) if isinstance(size, int) and size > 1 else ""


VERDICT_WORDS = {
    "good": ("Good", "the numbers can be trusted"),
    "usable": ("Usable with care", "some numbers may be inaccurate"),
    "misleading": ("Not usable", "the numbers are misleading"),
}
_FAILED = ("error", "warn")


def show_integrity(context: Context, integrity: Result) -> Component:
    """Show the verdict of `integrity` with the failed checks.

    Args:
        context: The current context, for links.
        integrity: Result of that analysis.
    """
    row = integrity.tables["verdict"].iloc[0]
    verdict, checks = str(row["verdict"]), int(row["checks"])
    word, meaning = VERDICT_WORDS.get(verdict, (verdict, ""))
    failed = _find_failures(integrity)
    passed = f" {meaning}. {checks - len(failed)} of {checks} checks passed. "
    link = dcc.Link("All checks", href=context.view.elsewhere("integrity"))
    shown: list[Component] = [html.P([html.Strong(f"{word}:"), passed, link])]
    if failed:
        shown.append(html.Ul([html.Li(_check(*check)) for check in failed]))
    return html.Section(shown, className=f"tk-verdict tk-verdict-{verdict}")


def _find_failures(integrity: Result) -> list[tuple[str, str, str]]:
    """Return level, name and detail of each failed check, most severe first."""
    checks = integrity.tables["checks"]
    rows = checks[["level", "check", "detail"]].itertuples(index=False, name=None)
    return sorted((row for row in rows if row[0] in _FAILED), key=lambda row: _FAILED.index(row[0]))


def _check(level: str, name: str, detail: str) -> list[Component | str]:
    word = "Error" if level == "error" else "Warning"
    return [html.Strong(f"{word}: {name.replace('_', ' ')}"), " – ", *with_code(sentence(detail))]


NAME = "overview"
_TILES: dict[str, tuple[tuple[str, Callable[[Result, View], list[Tile]]], ...]] = {
    "device_tiles": (("steps", key_numbers.step_times), ("gpu_breakdown", key_numbers.device_time)),
    "work_tiles": (("overlap", key_numbers.copies), ("memory", key_numbers.memory)),
}
"""Blocks of tiles: analyses with the functions that create the tiles."""


def _layout(_: Context) -> list[Component]:
    findings_place = html.Div(block(NAME, "findings", height=560), className="tk-wide tk-findings-place")
    numbers = [
        tile_blocks(NAME, *_TILES),
        block(NAME, "breakdown", height=360),
        block(NAME, "ran", height=120),
    ]
    return [
        html.Div(block(NAME, "verdict", height=116), className="tk-bound-place"),
        block(NAME, "integrity", height=40),
        block(NAME, "baseline", height=0),
        html.Div([findings_place, html.Div(numbers, className="tk-narrow")], className="tk-columns"),
    ]


def _baseline(context: Context) -> list[Component]:
    comparability = compare_with_baseline(context)
    if comparability is None or not comparability.refused:
        return []
    differences = "; ".join(
        f"{difference.field.replace('_', ' ')} ({difference.base} vs. {difference.head})"
        for difference in comparability.refused
    )
    what = html.Strong("Changes not shown: the baseline is not comparable with this run. ")
    content: list[Component | str] = [what, f"Differences: {clean(differences)}."]
    return [html.Section(content, className="tk-verdict tk-verdict-usable")]


def _tiles(name: str, context: Context) -> list[Component]:
    def tiles(result: Callable[[str], Result]) -> list[Tile]:
        return [tile for analysis, read in _TILES[name] for tile in read(result(analysis), context.view)]

    start_fast_analyses(context.results, context.run, before=_TILES[name][0][0])
    return tiles_with_baseline(context, tiles)


PAGE = Page(
    name=NAME,
    title="Overview",
    question="What bounds this run, what should be changed, and can the numbers be trusted?",
    section=Section.START,
    order=10,
    layout=_layout,
    blocks={
        "verdict": findings.show_verdict,
        "ran": lambda context: show_metadata(context.run.meta),
        "integrity": lambda context: show_integrity(context, context.result("integrity")),
        "baseline": _baseline,
        **{name: partial(_tiles, name) for name in _TILES},
        "breakdown": show_breakdown,
        "findings": findings.show_findings,
    },
    exports=FIRST,
    advice=findings.wait_for_findings,
    prefetch=FOR_VERDICT,
    connect=findings.connect,
)
