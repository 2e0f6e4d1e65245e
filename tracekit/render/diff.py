"""Report of `tracekit diff`: the verdict on two runs, and the breakdown of their difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from tracekit.diff.breakdowns import Amount, BreakdownLine, Cause, Group
from tracekit.diff.model import Diff, Verdict
from tracekit.errors import clean
from tracekit.render import diff_sentences as sentences
from tracekit.render import diff_tables as tables
from tracekit.render import document as doc
from tracekit.render.analyze import result_content
from tracekit.render.cells import csv_text, escape, escape_prose, json_text
from tracekit.render.layout import DEFAULT_LIMIT
from tracekit.render.page import fold_table, page
from tracekit.runs.text import PROSE, human

COLORS = 8
"""Number of bar colors in the template of HTML, one per part of a step."""
_MAX_SMALL_ROWS = 8  # maximum rows of tables that are not the breakdown, on a terminal
_MIN_PROSE_WIDTH = 110  # width of a terminal from which definitions are shown, in cells
_MAX_HTML_ROWS = 200
_MAX_FOLDED_ROWS = 25
_MAX_TOP_CAUSES = 5
_MAX_CELL = 120
_CAUSE_COLUMNS = ("delta_ns", "made_of", "n_base", "n_head", "what", "module")
_UNFOLDED = ("metrics", "wall", "work", "causes", "differences")
_SIGNS = {Verdict.REGRESSION: "❌ ", Verdict.IMPROVEMENT: "✅ ", Verdict.PASS: "✅ "}


def render(diff: Diff, output_format: str, *, limit: int | None = None, exit_code: int = 0) -> str:
    """Render in one of the formats of `tracekit diff`.

    Args:
        diff: The comparison.
        output_format: `table`, `json`, `csv`, `markdown` or `html`.
        limit: Maximum rows per table, 0 for all; None for the default of the format.
        exit_code: Exit code of the command, in JSON.
    """
    if output_format == "json":
        return as_json(diff, exit_code=exit_code, limit=limit or 0)
    if output_format == "csv":
        return as_csv(diff, limit=limit or 0)
    writers: dict[str, Callable[..., str]] = {"html": as_html, "markdown": as_markdown}
    write = writers.get(output_format, as_text)
    return write(diff) if limit is None else write(diff, limit=limit)


def as_text(diff: Diff, *, limit: int = DEFAULT_LIMIT) -> str:
    """Render the verdict, then ledgers and causes; with at most `limit` rows per table, 0 for all."""
    sides = [("base", diff.base), ("head", diff.head)]
    title = "\n".join(f"{name}  {clean(sentences.describe_side(side))}" for name, side in sides)
    if diff.verdict is Verdict.NOT_COMPARABLE:
        command = f"  {clean(sentences.varying_command(diff))}\n"  # in one line, to be copied
        return doc.write_text(
            _wrap(sentences.headline(diff), title=title),
            _table(tables.differences(diff), limit),
            doc.Raw(doc.write_text(_wrap(sentences.next_step(diff))) + command),
        )
    small = (tables.counts(diff), tables.alone(diff), tables.match(diff), tables.differences(diff))
    blocks: list[doc.Block] = [
        _wrap(
            sentences.headline(diff),
            sentences.describe_largest(diff),
            sentences.describe_differences(diff),
            sentences.describe_steps(diff),
            sentences.next_step(diff),
            title=title,
        ),
        _table(tables.metrics(diff)),
        _wall(diff),
        _table(tables.work(diff)),
        _table(tables.causes(diff), limit) if diff.causes else doc.Raw(f"{sentences.NOTHING_CHANGED}\n"),
        *(_table(table, limit and min(limit, _MAX_SMALL_ROWS)) for table in small if table.rows),
    ]
    for analysis, result in diff.analyses:
        lines = [
            f"{finding.severity}: {clean(finding.title)}: {clean(finding.advice)} [{finding.code}]"
            for finding in result.findings
        ]
        lines += [f"note: {note}" for note in result.notes]
        name = f"{clean(analysis.title)} [{analysis.name}]"
        blocks.append(doc.Items(lines, title=name, width=doc.terminal_width(default=120)))
    return doc.write_text(*blocks, _wrap(*(f"note: {warning}" for warning in diff.warnings)))


def _wrap(*lines: str, title: str = "") -> doc.Items:
    return doc.Items([*filter(None, lines)], title=title, indent="", width=doc.terminal_width(default=120))


def _table(table: doc.Table, limit: int = 0) -> doc.TableBlock:
    return doc.TableBlock(table, limit, all_columns="--format html shows all")


def _wall(diff: Diff) -> doc.Block:
    """Return the wall ledger; if definitions do not fit, only that of the overlap."""
    table = tables.wall(diff)
    if doc.terminal_width(default=120) >= _MIN_PROSE_WIDTH or diff.wall is None:
        return _table(table)
    columns = tuple(column for column in table.columns if column.unit != PROSE)
    overlap = diff.wall.overlap
    meaning = f"{overlap.name}: {overlap.meaning}; " if overlap.a_ns or overlap.b_ns else ""
    definitions = _wrap(f"{meaning}for definitions of the parts use --format html")
    return doc.Raw(doc.write_text(_table(replace(table, columns=columns))) + doc.write_text(definitions))


def as_markdown(diff: Diff, *, limit: int = _MAX_FOLDED_ROWS) -> str:
    """Render verdict, ledgers and top causes, and further folded sections that fit.

    Folded tables have at most `limit` rows, 0 for all; tables that do not fit are omitted and counted.
    """
    # no check mark if a metric got worse that does not determine the verdict
    hidden = diff.verdict is not Verdict.REGRESSION and sentences.has_regression(diff)
    sign = "⚠️ " if hidden else _SIGNS.get(diff.verdict, "")
    heading = doc.Heading(sentences.headline(diff), sign)
    sides = [f"base: {sentences.describe_side(diff.base)}", f"head: {sentences.describe_side(diff.head)}"]
    if diff.verdict is Verdict.NOT_COMPARABLE:
        command = (
            f"{escape(sentences.next_step(diff))}\n\n{doc.fence_commands(sentences.varying_command(diff))}"
        )
        differences = _short_table(tables.differences(diff))
        return doc.write_markdown(heading, doc.Items(sides), differences, doc.Raw(markdown=command))
    lines = [sentences.describe_differences(diff), sentences.describe_steps(diff), *diff.warnings]
    next_step = sentences.next_step(diff)
    prose = f"- {escape_prose(next_step)}\n" if next_step else ""
    required = [
        heading,
        doc.Raw(markdown=doc.write_markdown(doc.Items([*sides, *filter(None, lines)])) + prose),
        *(_short_table(table) for table in (tables.metrics(diff), tables.wall(diff), tables.work(diff))),
        _top_causes(diff),
    ]
    end = doc.Raw(markdown=f"Reproduce:\n\n{doc.fence_commands(sentences.diff_command(diff))}")
    return doc.limit_bytes(
        required,
        _folded_blocks(diff, limit),
        end,
        elsewhere="`--format html` or `--format json`",
    )


def _top_causes(diff: Diff) -> doc.Block:
    table = tables.causes(diff)
    if not table.rows:
        return doc.Raw(markdown=f"### Causes\n\n{sentences.NOTHING_CHANGED}\n")
    first, *others = table.columns
    columns = (first, *(column for column in others if column.name in _CAUSE_COLUMNS))
    title = f"Top causes by {diff.by}, per {tables.unit(diff)}"
    return _short_table(replace(table, title=title, columns=columns), _MAX_TOP_CAUSES)


def _folded_blocks(diff: Diff, limit: int) -> list[doc.Block]:
    blocks: list[doc.Block] = []
    for analysis, result in diff.analyses:
        items = [
            f"- {finding.severity}: **{escape(finding.title)}**: {escape(finding.advice)} "
            f"({escape(finding.code)})\n"
            for finding in result.findings
        ]
        items += [f"- note: {escape(note)}\n" for note in result.notes]
        blocks.append(doc.Fold(analysis.title, [doc.Raw(markdown="".join(items))]))
    folded = [table for table in tables.all_tables(diff) if table.name not in {"metrics", "wall", "work"}]
    folded.sort(key=lambda table: table.name in {"causes", "groups"})  # the longest last
    return blocks + [
        doc.Fold(table.title, [_short_table(replace(table, title=""), limit)])
        for table in folded
        if table.rows
    ]


def _short_table(table: doc.Table, limit: int = 0) -> doc.TableBlock:
    return doc.TableBlock(table, limit, max_chars=_MAX_CELL)


def as_html(*diffs: Diff, limit: int = _MAX_HTML_ROWS) -> str:
    """Render as an HTML page in the reader's light or dark theme, with at most `limit` rows per table."""
    return page("diff.html.j2", {"diffs": [_html(diff, limit) for diff in diffs], "colors": COLORS})


def _html(diff: Diff, limit: int) -> dict[str, Any]:
    refused = diff.verdict is Verdict.NOT_COMPARABLE
    lines = [] if refused else [sentences.describe_differences(diff), sentences.describe_steps(diff)]
    return {
        "base": sentences.describe_side(diff.base),
        "head": sentences.describe_side(diff.head),
        "headline": sentences.headline(diff),
        "tone": _tone(diff),
        "lines": [line for line in lines if line],
        "next_step": sentences.next_step(diff).replace("`", ""),
        "declaring": sentences.varying_command(diff) if refused else "",
        "bars": _bars(diff),
        "tables": [
            fold_table(table, limit=limit, is_open=table.name in _UNFOLDED)
            for table in ([tables.differences(diff)] if refused else tables.all_tables(diff))
            if table.rows
        ],
        "nothing": "" if refused or diff.causes else sentences.NOTHING_CHANGED,
        "analyses": [pair for pair in diff.analyses if pair[1].findings or pair[1].notes],
        "warnings": diff.warnings,
        "command": sentences.diff_command(diff),
    }


def _tone(diff: Diff) -> str:
    """Return the CSS class of the verdict."""
    if sentences.has_regression(diff) or diff.verdict is Verdict.NOT_COMPARABLE:
        return "bad"
    return "good" if diff.verdict in {Verdict.PASS, Verdict.IMPROVEMENT} else ""


def _bars(diff: Diff) -> list[dict[str, Any]]:
    """Return the step of each side as a bar of its parts, scaled to the longer step."""
    if diff.wall is None:
        return []
    scale = max(diff.wall.total.a_ns, diff.wall.total.b_ns, 1)
    lines = [(place % COLORS, line) for place, line in enumerate(diff.wall.lines) if line.a_ns or line.b_ns]
    return [
        _bar("base", [(color, line.name, line.a_ns) for color, line in lines], scale),
        _bar("head", [(color, line.name, line.b_ns) for color, line in lines], scale),
    ]


def _bar(side: str, lines: list[tuple[int, str, int]], scale: int) -> dict[str, Any]:
    total = sum(length for _, _, length in lines) or 1
    parts = [
        {
            "name": name,
            "color": color,
            "width": f"{100 * length / scale:.3f}",
            "share": human(length / total, "share"),
            "shown": length > 0,
        }
        for color, name, length in lines
    ]
    shares = ", ".join(f"{part['name']} {part['share']}" for part in parts if part["shown"])
    return {"name": side, "parts": parts, "label": f"step of the {side}: {shares}"}


def as_json(diff: Diff, *, exit_code: int, limit: int = 0) -> str:
    """Render as one JSON object; times are exact totals over the compared steps, in ns.

    Args:
        diff: The comparison.
        exit_code: Exit code of the command.
        limit: Maximum groups, causes, counts and names on one side, 0 for all.
    """
    return json_text(
        "diff",
        verdict=str(diff.verdict),
        exit_code=exit_code,
        base=asdict(diff.base),
        head=asdict(diff.head),
        comparability={
            "status": str(diff.comparability.status),
            "differences": [*map(asdict, diff.comparability.differences)],
        },
        design=asdict(diff.design),
        metrics=[*map(asdict, diff.metrics)],
        compared=asdict(diff.compared) if diff.compared else None,
        ledger=_ledger(diff),
        by=diff.by,
        causes=[*map(_cause, diff.causes[: limit or None])],
        groups=[*map(_group, diff.groups[: limit or None])],
        counts=[*map(asdict, diff.counts[: limit or None])],
        only_base=[*map(asdict, diff.only_base[: limit or None])],
        only_head=[*map(asdict, diff.only_head[: limit or None])],
        match=_match(diff),
        analyses={
            analysis.name: result_content(result, analysis.comparison) for analysis, result in diff.analyses
        },
        warnings=list(diff.warnings),
        misleading=list(diff.misleading),
    )


def as_csv(diff: Diff, *, limit: int = 0) -> str:
    """Render a line per cause, or the differences if nothing was compared."""
    table = tables.causes(diff, spelled=False) if diff.work else tables.differences(diff)
    return csv_text(table.rows[: limit or None], table.columns)


def _ledger(diff: Diff) -> dict[str, Any] | None:
    if diff.wall is None or diff.work is None:
        return None
    work, wall = diff.work, diff.wall
    return {
        "wall": [_line(line) for line in wall.lines],
        "step": _line(wall.total),
        "overlap": _line(wall.overlap),
        "work": {
            "a_ns": work.a_ns,
            "b_ns": work.b_ns,
            "delta_ns": work.b_ns - work.a_ns,
            **asdict(work.terms),
            "residual": work.residual,
        },
    }


def _line(line: BreakdownLine) -> dict[str, Any]:
    return {**asdict(line), "delta_ns": line.delta}


def _amounts(a: Amount, b: Amount) -> dict[str, Any]:
    return {"a": asdict(a), "b": asdict(b)}


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "label": cause.label,
        "detail": cause.detail,
        "delta_ns": cause.terms.delta,
        **_amounts(cause.a, cause.b),
        "terms": asdict(cause.terms),
        "rungs": list(cause.match_levels),
        "modules": list(cause.modules),
        "evidence": cause.evidence,
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "path": list(group.path),
        "role": group.role,
        "rung": group.match_level or None,
        "kind": group.sort,
        "name_a": group.name_a or None,
        "name_b": group.name_b or None,
        "shapes": group.shapes or None,
        "module": group.module or None,
        "delta_ns": group.terms.delta,
        **_amounts(group.a, group.b),
        "terms": asdict(group.terms),
        "evidence": group.evidence,
    }


def _match(diff: Diff) -> dict[str, Any] | None:
    if diff.match is None:
        return None
    return {
        "time_matched_a": diff.match.share_a,
        "time_matched_b": diff.match.share_b,
        "by_rung": [
            {"rung": level.name or None, "groups": level.groups, "a_ns": level.a_ns, "b_ns": level.b_ns}
            for level in diff.match.by_level
        ],
        "rules": diff.match.rules,
    }
