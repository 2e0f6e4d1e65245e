"""Overview page: what bounds the run, findings, key numbers, time breakdown, integrity and metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis.kernel_names import brief
from tracekit.errors import clean
from tracekit.render.facts import flatten
from tracekit.runs.environment import program_settings
from tracekit.runs.meta import RunMeta

from ...analysis_pages.pages import result_blocks
from ...analysis_pages.results import PageResults
from ...blocks import block
from ...components.charts import Tile
from ...components.links import gpu_names, source_files
from ...components.text import sentence, with_code
from ...site import Context, Page, Section
from .. import key_numbers
from ..key_numbers import compare_with_baseline, tile_blocks, tiles_with_baseline
from ..steps import ANALYSIS, show_breakdown
from . import findings
from .findings import FIRST, FOR_VERDICT, start_fast_analyses

_SETTINGS = ("mode", "level", "batch_size", "resolution", "dtype", "device")
"""Settings of a workload that are shown, where recorded."""
_MAX_CHARS = 160  # maximum characters of a metadata value; the rest is in its tooltip
_MAX_TOOLTIP_CHARS = 2_000


def list_facts(meta: RunMeta) -> list[tuple[str, str]]:
    """Return name and text of the known metadata, in the order in which they are shown."""
    git, size = meta.git, meta.fingerprint.get("world_size")
    branch = f" on {git.branch}" if git and git.branch else ""
    # An imported run was created when it was imported, which is not when the trace was recorded.
    facts = {
        "Workload": _workload(meta.workload),
        "Label": meta.label or "",
        "Commit": f"{git.sha[:10]}{branch}{', with uncommitted changes' * git.dirty}" if git else "",
        "GPU": "" if meta.fingerprint.get("device") == "cpu" else gpu_names(meta),
        "torch": str(meta.environment.get("torch") or ""),
        "CUDA": str(meta.environment.get("cuda") or ""),
        "Ranks": str(size) if isinstance(size, int) and size > 1 else "",
        "Command": " ".join(meta.command),
        "Recorded": meta.created_at.replace("T", " ")[:16] if meta.collector.name != "import" else "",
        "Imported from": source_files(meta),
    }
    return [(name, clean(text)) for name, text in facts.items() if text]


def list_settings(meta: RunMeta) -> list[tuple[str, str]]:
    """Return name and text of the settings of the recorded program, which its speed depends on."""
    settings = flatten(program_settings(meta.environment))
    return [(str(row["name"]), clean(_WORDS.get(str(row["value"]), str(row["value"])))) for row in settings]


_WORDS = {"True": "yes", "False": "no"}


def _show_metadata(meta: RunMeta) -> Component:
    """Show the metadata, and the settings of the program folded."""
    facts, settings = _show_pairs(list_facts(meta)), list_settings(meta)
    if not settings:
        return facts
    summary = html.Summary("Settings of the program")
    return html.Div([facts, html.Details([summary, _show_pairs(settings)], className="tk-more")])


def _show_pairs(facts: list[tuple[str, str]]) -> Component:
    """Show names and values as a list."""
    pairs = []
    for name, text in facts:
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


VERDICT_WORDS = {
    "good": ("Good", "the numbers can be trusted"),
    "usable": ("Usable with care", "some numbers may be inaccurate"),
    "misleading": ("Not usable", "the numbers are misleading"),
}
"""Word and meaning of each verdict of the analysis `integrity`."""
_FAILED = {"error": "Error", "warn": "Warning"}
"""Words for the levels of failed checks, most severe first; others passed or inform."""


def _show_integrity(context: Context) -> Component:
    """Show whether the trace can be trusted, with the checks that failed, most severe first."""
    integrity = context.result("integrity")
    row = integrity.tables["verdict"].iloc[0]
    verdict = str(row["verdict"])
    word, meaning = VERDICT_WORDS.get(verdict, (verdict, ""))
    checks = integrity.tables["checks"]
    rows = checks[["level", "check", "detail"]].itertuples(index=False, name=None)
    passed, judged = int((checks["level"] == "ok").sum()), int((checks["level"] != "info").sum())
    failed = sorted((row for row in rows if row[0] in _FAILED), key=lambda row: [*_FAILED].index(row[0]))
    summary = f" {meaning}. {passed} of {judged} checks passed. "
    link = dcc.Link("All checks", href=context.view.elsewhere("integrity"))
    shown: list[Component] = [html.P([html.Strong(f"{word}:"), summary, link])]
    if failed:
        entries = []
        for level, name, detail in failed:
            heading = html.Strong(f"{_FAILED[level]}: {name.replace('_', ' ')}")
            entries.append(html.Li([heading, " – ", *with_code(sentence(detail))]))
        shown.append(html.Ul(entries))
    return html.Section(shown, className=f"tk-verdict tk-verdict-{verdict}")


NAME = "overview"
_TILES: dict[str, tuple[tuple[str, Callable[[PageResults], list[Tile]]], ...]] = {
    "device_tiles": (("steps", key_numbers.step_times), ("gpu_breakdown", key_numbers.device_time)),
    "work_tiles": (("overlap", key_numbers.copies), ("memory", key_numbers.memory)),
}
"""Analyses of each block of tiles, with the function that creates the tiles of its result.

A block appears once all of its analyses are computed.
"""


def _layout(context: Context) -> list[Component]:
    """Return the blocks, each with its height in pixels until it is computed."""
    has_device = context.chosen is not None and context.chosen.rows("device_intervals") > 0
    has_ranks = context.chosen is not None and len(context.chosen.ranks) > 1
    verdict = block(NAME, "verdict", height=158 if has_ranks else 118)
    findings_place = html.Div(block(NAME, "findings", height=560), className="tk-wide tk-findings-place")
    numbers = [
        tile_blocks(NAME, *_TILES),
        block(NAME, "breakdown", height=360),
        block(NAME, "ran", height=120),
    ]
    return [
        html.Div(verdict, className="tk-bound-place tk-bound-of-ranks" if has_ranks else "tk-bound-place"),
        block(NAME, "integrity", height=40),
        block(NAME, "baseline", height=0),
        html.Div(
            [
                findings_place,
                html.Div(numbers, className="tk-narrow" if has_device else "tk-narrow tk-few-tiles"),
            ],
            className="tk-columns",
        ),
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
    heading = html.Strong("Changes not shown: these runs are not directly comparable. ")
    content: list[Component | str] = [heading, f"Differences: {clean(differences)}."]
    return [html.Section(content, className="tk-verdict tk-verdict-usable")]


def _tiles(name: str, context: Context) -> list[Component]:
    """Show a block of tiles, with changes from the baseline."""
    names, creators = zip(*_TILES[name], strict=True)
    # Faster analyses than those of this block first, so that this block does not delay others.
    start_fast_analyses(context.results, context.run, before=names[0])

    def read(results: PageResults) -> list[Tile]:
        return [tile for create in creators for tile in create(results)]

    return context.keep((_tiles, name), lambda: tiles_with_baseline(PageResults(context, names), read))


PAGE = Page(
    name=NAME,
    title="Overview",
    question="What bounds this run, what should be changed, and can the numbers be trusted?",
    section=Section.START,
    order=10,
    layout=_layout,
    blocks={
        "verdict": findings.show_verdict,
        "ran": lambda context: _show_metadata(context.run.meta),
        "integrity": _show_integrity,
        "baseline": _show_incomparable_baseline,
        **{name: partial(_tiles, name) for name in _TILES},
        **result_blocks((ANALYSIS,), breakdown=show_breakdown),
        "findings": findings.show_findings,
    },
    exports=FIRST,
    advice=findings.wait_for_findings,
    prefetch=FOR_VERDICT,
    connect=findings.connect,
)
