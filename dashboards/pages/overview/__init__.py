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
"""Settings of a workload that are shown, where recorded."""
_MAX_CHARS = 72
"""Maximum characters of a metadata value; the rest is in its tooltip."""
_MAX_TOOLTIP_CHARS = 2_000


def list_facts(meta: RunMeta) -> list[tuple[str, str]]:
    """Return name and text of the known metadata, in the order in which they are shown.

    Args:
        meta: The run's metadata.
    """
    # An imported run was created when it was imported, which is not when the trace was recorded.
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
    """Show the metadata as a list of names and values.

    Args:
        meta: The run's metadata.
    """
    pairs = []
    for name, text in list_facts(meta):
        shown = brief(text, _MAX_CHARS) if len(text) > _MAX_CHARS else text
        pairs.append(html.Div([html.Dt(name), html.Dd(shown, title=text[:_MAX_TOOLTIP_CHARS])]))
    return html.Dl(pairs, className="tk-facts")


def _workload(workload: Mapping[str, Any] | None) -> str:
    if not workload:
        return ""
    settings = [
        f"{name.replace('_', ' ')} {workload[name]}" for name in _SETTINGS if workload.get(name) is not None
    ]
    return ", ".join([str(workload.get("name", "")), *settings])


def _commit(git: Git | None) -> str:
    if git is None:
        return ""
    branch = f" on {git.branch}" if git.branch else ""
    return git.sha[:10] + branch + (", with uncommitted changes" if git.dirty else "")


def _ranks(fingerprint: Mapping[str, Any]) -> str:
    """Return the number of ranks of a job; empty for a single process."""
    size = fingerprint.get("world_size")
    return str(size) if isinstance(size, int) and size > 1 else ""


VERDICT_WORDS = {
    "good": ("Good", "the numbers can be trusted"),
    "usable": ("Usable with care", "some numbers may be inaccurate"),
    "misleading": ("Not usable", "the numbers are misleading"),
}
"""Word and meaning of each verdict of the analysis `integrity`."""
_FAILED_LEVELS = ("error", "warn")
"""Levels of failed checks, most severe first; others passed or inform."""


def show_integrity(context: Context, integrity: Result) -> Component:
    """Show whether the trace can be trusted, with the checks that failed.

    Args:
        context: The current context, for links.
        integrity: Result of the analysis `integrity`.
    """
    row = integrity.tables["verdict"].iloc[0]
    verdict, checks = str(row["verdict"]), int(row["checks"])
    word, meaning = VERDICT_WORDS.get(verdict, (verdict, ""))
    failed = _find_failures(integrity)
    summary = f" {meaning}. {checks - len(failed)} of {checks} checks passed. "
    link = dcc.Link("All checks", href=context.view.elsewhere("integrity"))
    shown: list[Component] = [html.P([html.Strong(f"{word}:"), summary, link])]
    if failed:
        shown.append(html.Ul([html.Li(_show_failure(*check)) for check in failed]))
    return html.Section(shown, className=f"tk-verdict tk-verdict-{verdict}")


def _find_failures(integrity: Result) -> list[tuple[str, str, str]]:
    """Return level, name and detail of each failed check, most severe first."""
    checks = integrity.tables["checks"]
    rows = checks[["level", "check", "detail"]].itertuples(index=False, name=None)
    failed = (row for row in rows if row[0] in _FAILED_LEVELS)
    return sorted(failed, key=lambda row: _FAILED_LEVELS.index(row[0]))


def _show_failure(level: str, name: str, detail: str) -> list[Component | str]:
    word = "Error" if level == "error" else "Warning"
    return [html.Strong(f"{word}: {name.replace('_', ' ')}"), " – ", *with_code(sentence(detail))]


NAME = "overview"
_TILES: dict[str, tuple[tuple[str, Callable[[Result, View], list[Tile]]], ...]] = {
    "device_tiles": (("steps", key_numbers.step_times), ("gpu_breakdown", key_numbers.device_time)),
    "work_tiles": (("overlap", key_numbers.copies), ("memory", key_numbers.memory)),
}
"""Analyses of each block of tiles, with the function that creates the tiles of its result.

A block appears once all of its analyses are computed.
"""


def _layout(_: Context) -> list[Component]:
    """Return the blocks, each with its height in pixels until it is computed."""
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


def _show_incomparable_baseline(context: Context) -> list[Component]:
    """Say why the key numbers show no change from the baseline; nothing if they do, or without a baseline."""
    comparability = compare_with_baseline(context)
    if comparability is None or not comparability.refused:
        return []
    differences = "; ".join(
        f"{difference.field.replace('_', ' ')} ({difference.base} vs. {difference.head})"
        for difference in comparability.refused
    )
    heading = html.Strong("Changes not shown: the baseline is not comparable with this run. ")
    content: list[Component | str] = [heading, f"Differences: {clean(differences)}."]
    return [html.Section(content, className="tk-verdict tk-verdict-usable")]


def _tiles(name: str, context: Context) -> list[Component]:
    """Show a block of tiles, with changes from the baseline.

    Args:
        name: Key of `_TILES`.
        context: The current context.
    """

    def tiles(result: Callable[[str], Result]) -> list[Tile]:
        return [tile for analysis, create in _TILES[name] for tile in create(result(analysis), context.view)]

    # Faster analyses than those of this block first, so that this block does not delay others.
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
        "baseline": _show_incomparable_baseline,
        **{name: partial(_tiles, name) for name in _TILES},
        "breakdown": show_breakdown,
        "findings": findings.show_findings,
    },
    exports=FIRST,
    advice=findings.wait_for_findings,
    prefetch=FOR_VERDICT,
    connect=findings.connect,
)
