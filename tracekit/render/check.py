"""Report of `tracekit check`: the verdict on each metric of each configuration."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from tracekit.errors import ExitCode, clean
from tracekit.experiments.check_model import CheckResult, Configuration
from tracekit.render import check_ci, diff_tables
from tracekit.render import check_sentences as sentences
from tracekit.render import document as doc
from tracekit.render.cells import escape, json_text
from tracekit.render.page import fold_table, page

_ALL_COLUMNS = "--format json shows all"
_SIGNS = {ExitCode.OK: "✅ ", ExitCode.REGRESSION: "❌ "}
_TONES = {ExitCode.OK: "good", ExitCode.REGRESSION: "bad", ExitCode.NOT_COMPARABLE: "bad"}
_MAX_ITEMS = 50
_MAX_LINE = 400
_MAX_CELL = 160
_MAX_COMMAND = 4_000


def render(result: CheckResult, output_format: str) -> str:
    """Render in one of the formats of `tracekit check`."""
    writers = {
        "table": as_text,
        "json": as_json,
        "markdown": as_markdown,
        "html": as_html,
        "junit": check_ci.as_junit,
        "github": check_ci.as_github,
    }
    return writers[output_format](result)


def as_text(result: CheckResult) -> str:
    """Render verdict, metrics, differences and next commands."""
    return doc.write_text(*_blocks(result), doc.Commands("Reproduce", [sentences.command(result)]))


def as_markdown(result: CheckResult) -> str:
    """Render verdict, metrics, causes, differences and next commands; notes are folded."""
    command = sentences.command(result)
    long = len(command.encode()) > _MAX_COMMAND
    end = (
        doc.Raw(markdown="Reproduce: in `--format json`\n") if long else doc.Commands("Reproduce", [command])
    )
    return doc.limit_bytes([], _blocks(result), end, elsewhere="`--format json`")


def _blocks(result: CheckResult) -> list[doc.Block]:
    return [
        doc.Heading(sentences.headline(result), _SIGNS.get(result.exit_code, "⚠️ ")),
        _items([sentences.sides(configuration) for configuration in result.configurations]),
        *_table(replace(sentences.metric_table(result), title="")),
        _items(sentences.reasons(result), "Reasons:"),
        *(_cause(text, table) for text, table in sentences.causes(result)),
        *_table(sentences.field_table(result)),
        doc.Fold("Notes", [_items(sentences.notes(result), "Notes:")]),
        doc.Commands("Break down the difference", sentences.differences(result), _MAX_ITEMS),
        doc.Commands("Find the commit", sentences.searches(result), _MAX_ITEMS),
    ]


def _items(lines: list[str], title: str = "") -> doc.Items:
    return doc.Items(lines, title=title, max_items=_MAX_ITEMS, max_chars=_MAX_LINE)


def _table(table: doc.Table) -> list[doc.Block]:
    """Return a table; nothing without rows. Only Markdown limits their number."""
    titled = replace(table, title=table.title and f"{table.title}:")
    text = doc.write_text(replace(_table_block(titled), limit=0))
    return [doc.Raw(text, doc.write_markdown(_table_block(table)))] if table.rows else []


def _table_block(table: doc.Table) -> doc.TableBlock:
    return doc.TableBlock(table, _MAX_ITEMS, all_columns=_ALL_COLUMNS, max_chars=_MAX_CELL)


def _cause(text: str, table: doc.Table) -> doc.Block:
    """Return a sentence with its table, which Markdown omits together."""
    blocks = [_table_block(table)] if table.rows else []
    return doc.Raw(
        doc.write_text(doc.Raw(f"{clean(text)}\n"), *blocks),
        f"{escape(text)}\n\n{doc.write_markdown(*blocks)}",
    )


def as_html(result: CheckResult) -> str:
    """Render as an HTML page that follows the reader's light or dark theme."""
    metrics, fields = sentences.metric_table(result), sentences.field_table(result)
    content = {
        "headline": clean(sentences.headline(result)),
        "tone": _TONES.get(result.exit_code, ""),
        "sides": [clean(sentences.sides(configuration)) for configuration in result.configurations],
        "metrics": [fold_table(metrics)] if metrics.rows else [],
        "reasons": [*map(clean, sentences.reasons(result))],
        "causes": [(clean(text), fold_table(table)) for text, table in sentences.causes(result)],
        "fields": [fold_table(fields)] if fields.rows else [],
        "notes": [*map(clean, sentences.notes(result))],
        "commands": [
            ("Break down the difference", [*map(clean, sentences.differences(result))]),
            ("Find the commit", [*map(clean, sentences.searches(result))]),
            ("Reproduce", [clean(sentences.command(result))]),
        ],
    }
    return page("check.html.j2", content)


def as_json(result: CheckResult) -> str:
    """One object: verdict, exit code, and every configuration with its metrics and differences."""
    return json_text(
        "check",
        verdict=str(result.verdict),
        exit_code=int(result.exit_code),
        against=result.against,
        merge_base=result.merge_base,
        threshold=result.threshold,
        configurations=[_configuration(one) for one in result.configurations],
        missing=list(result.missing),
        unmeasured=list(result.unmeasured),
        notes=list(result.notes),
        explain=[*sentences.differences(result), *sentences.searches(result)],
        reproduce=list(result.command),
    )


def _configuration(one: Configuration) -> dict[str, Any]:
    return {
        "name": one.name,
        "workload": one.workload,
        "mode": one.mode,
        "device": one.device,
        "outcome": str(one.outcome),
        "base": asdict(one.base) if one.base else None,
        "head": asdict(one.head),
        "differences": [{**asdict(each), "status": str(each.status)} for each in one.differences],
        "metrics": [each.entry() for each in one.comparisons],
        "one_sided": list(one.one_sided),
        "notes": list(one.notes),
        # all lines of the work ledger, per step; null if the profiles were not compared
        "causes": diff_tables.causes(one.explained).rows if one.explained else None,
    }
