"""Report of `tracekit check`: the verdict on each metric of each configuration."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

from tracekit.errors import ExitCode, clean
from tracekit.experiments.check_model import CheckResult, Configuration, Outcome
from tracekit.render import check_sentences as sentences
from tracekit.render import ci, diff_tables
from tracekit.render import document as doc
from tracekit.render.cells import escape, json_text

_ALL_COLUMNS = "--format json shows all"
_SIGNS = {ExitCode.OK: "✅ ", ExitCode.REGRESSION: "❌ "}
_TONES = {ExitCode.OK: "good", ExitCode.REGRESSION: "bad", ExitCode.NOT_COMPARABLE: "bad"}
_MAX_ITEMS = 50
_MAX_LINE = 400
_MAX_CELL = 160
_MAX_COMMAND = 4_000


def render(result: CheckResult, output_format: str) -> str:
    """Render in one of the formats of `tracekit check`.

    Prometheus and OTLP get both sides, the ratio with its interval, and the verdict of each metric.
    """
    match output_format:
        case "table":
            return as_text(result)
        case "json":
            return as_json(result)
        case "markdown":
            return as_markdown(result)
        case "prometheus":
            return ci.write_prometheus(_samples(result), _METRICS)
        case "otlp":
            return ci.write_otlp(_samples(result), _METRICS, time.time_ns())
    return _for_ci(result).write(output_format)


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
        doc.Heading(sentences.headline(result), _SIGNS.get(result.decision, "⚠️ ")),
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


def _for_ci(result: CheckResult) -> ci.Report:
    return ci.Report(
        command="tracekit check",
        headline=sentences.headline(result),
        tone=_TONES.get(result.decision, ""),
        sides=[sentences.sides(configuration) for configuration in result.configurations],
        metrics=sentences.metric_table(result),
        reasons=sentences.reasons(result),
        causes=sentences.causes(result),
        fields=sentences.field_table(result),
        notes=sentences.notes(result),
        further=[
            ("Break down the difference", sentences.differences(result)),
            ("Find the commit", sentences.searches(result)),
        ],
        reproduce=sentences.command(result),
        cases=[case for configuration in result.configurations for case in _cases(configuration)],
        annotations=_annotations(result),
    )


def as_json(result: CheckResult) -> str:
    """One object: verdict, exit code, and every configuration with its metrics and differences."""
    return json_text(
        "check",
        verdict=str(result.verdict),
        exit_code=int(result.exit_code),
        on_unknown=result.on_unknown,
        against=result.against,
        merge_base=result.merge_base,
        threshold=result.threshold,
        configurations=[*map(_configuration, result.configurations)],
        missing=list(result.missing),
        unmeasured=list(result.unmeasured),
        notes=list(result.notes),
        explain=[*sentences.differences(result), *sentences.searches(result)],
        reproduce=list(result.command),
    )


def _configuration(config: Configuration) -> dict[str, Any]:
    return {
        "name": config.name,
        "workload": config.workload,
        "mode": config.mode,
        "device": config.device,
        "outcome": str(config.outcome),
        "base": asdict(config.base) if config.base else None,
        "head": asdict(config.head),
        "differences": [
            {**asdict(difference), "status": str(difference.status)} for difference in config.differences
        ],
        "metrics": [metric.entry() for metric in config.comparisons],
        "one_sided": list(config.one_sided),
        "notes": list(config.notes),
        # all lines of the work ledger, per step; null if the profiles were not compared
        "causes": diff_tables.causes(config.explained).rows if config.explained else None,
    }


def _samples(result: CheckResult) -> list[ci.Sample]:
    """Return the samples of a check: both sides, ratio with its interval, and verdict of each metric."""
    samples: list[ci.Sample] = [("tracekit_check_exit_code", {}, int(result.exit_code))]
    for configuration in result.configurations:
        for compared in configuration.comparisons:
            labels = {"configuration": configuration.name, "metric": compared.name}
            unit, scale = _BASE_UNITS.get(compared.unit, ("value", 1.0))
            for side, value in (("base", compared.a), ("head", compared.b)):
                samples.append((f"tracekit_check_{unit}", labels | {"side": side}, value * scale))
            low, high = compared.ci95 or (None, None)
            for bound, ratio in (("estimate", compared.ratio), ("low", low), ("high", high)):
                samples += (
                    [("tracekit_check_ratio", labels | {"bound": bound}, ratio)] if ratio is not None else []
                )
            samples.append(("tracekit_check_verdict", labels | {"verdict": str(compared.verdict)}, 1))
    return samples


_BASE_UNITS = {"ns": ("seconds", 1e-9), "bytes": ("bytes", 1.0)}
_METRICS = {
    "tracekit_check_exit_code": "0 pass, 1 regression, 3 cannot tell, 4 not comparable, 5 nothing compared",
    "tracekit_check_seconds": "A metric of a side that is a time",
    "tracekit_check_bytes": "A metric of a side that is a size",
    "tracekit_check_value": "A metric of a side of another unit",
    "tracekit_check_ratio": "Head over base, with the bounds of its 95% interval",
    "tracekit_check_verdict": "Always 1; the label is the verdict",
}


def _cases(configuration: Configuration) -> list[ci.Case]:
    """Return a case per metric: a regression is a failure, what is open an error, as the check did not pass.

    A configuration without a baseline is skipped.
    """
    group, outcome = configuration.name, str(configuration.outcome)
    if configuration.outcome is Outcome.NOT_COMPARABLE:
        fields = ", ".join(
            f"{difference.field} ({difference.status})" for difference in configuration.differences
        )
        return [ci.Case(group, "comparability", "error", outcome, fields)]
    if configuration.outcome is Outcome.NO_BASELINE:
        return [ci.Case(group, "baseline", "skipped", outcome, sentences.sides(configuration))]
    return ci.make_cases(group, configuration.comparisons, configuration.one_sided)


def _annotations(result: CheckResult) -> list[str]:
    """Return workflow commands: an error per regression, a warning per open metric, or one notice."""
    message = f"{sentences.headline(result)}. Reproduce: {sentences.command(result)}"
    lines = [ci.annotate("notice" if result.decision is ExitCode.OK else "warning", "tracekit", message)]
    if result.decision is ExitCode.REGRESSION:
        lines = []
    for configuration in result.configurations:
        lines += ci.annotate_metrics(configuration.name, configuration.comparisons, configuration.one_sided)
        if configuration.outcome is Outcome.NOT_COMPARABLE:
            fields = ", ".join(
                f"{difference.field} {difference.base} -> {difference.head}"
                for difference in configuration.differences
            )
            lines.append(ci.annotate("warning", f"{configuration.name}: not comparable", fields))
    return lines
