"""`tracekit workloads`: list the workloads of `tracekit collect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit import registry, render
from tracekit.analysis import Column
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option
from tracekit.workloads.base import BUILT_IN, DOMAINS, LEVELS

COLUMNS = (
    Column("name", "", "name for `tracekit collect --workload`"),
    Column("domain", "", "application domain"),
    Column("parameters", "count", "trainable parameters, with default options"),
    Column("modes", "", "values of `--mode`"),
    Column("levels", "", "values of `--level`"),
    Column("dtypes", "", "values of `--dtype`"),
    Column("defaults", "", "default options"),
    Column("sizes", "", "options set by `--size`"),
    Column("gpu_memory", "", "device memory that `--size gpu` needs in float32, in bytes, by mode"),
    Column("resolution_means", "prose", "meaning of `--resolution`"),
    Column("smallest_resolution", "count", "minimum of `--resolution`"),
    Column("dataset_shapes", "", "values of `--dataset-shape`"),
    Column("offloads", "", "values of `--offload`"),
    Column("source", "", "package that provides it"),
    Column("summary", "prose", "description"),
)
_SHOWN = ("domain", "name", "parameters", "levels", "defaults", "source", "summary")
"""Columns of the table, most important first."""


@click.command("workloads")
@format_option
def command(*, output_format: str) -> None:
    """List the workloads that `tracekit collect --workload NAME` can run.

    All use random data and download nothing; listing tracekit's own does not need torch. Models of
    transformers, timm and torchvision are listed if these are installed. The table omits modes, element
    types, sizes and the meaning of `--resolution`, and shows `all` for a workload that supports all levels;
    `--format json` shows everything.
    """
    workloads, broken = registry.load_all(registry.WORKLOADS)
    print_skipped(broken)
    columns = {column.name: column for column in COLUMNS}
    place = {domain: number for number, domain in enumerate(DOMAINS)}  # others come last
    workloads = sorted(
        workloads, key=lambda workload: (place.get(workload.domain, len(place)), workload.name)
    )
    rows = [{name: getattr(workload, name) for name in columns} for workload in workloads]
    if output_format == "table":
        rows = [row | {"levels": _abbreviate_levels(row["levels"])} for row in rows]
        others = any(workload.source != BUILT_IN for workload in workloads)
        columns = {name: columns[name] for name in _SHOWN if others or name != "source"}
    if output_format != "json":
        rows = [{name: _text(value) for name, value in row.items()} for row in rows]
    text = render.rows(
        rows, [*columns.values()], output_format, command="workloads", key="workloads", limit=0
    )
    click.echo(text, nl=False)


def print_skipped(broken: Mapping[str, Sequence[str]]) -> None:
    """Print a line on stderr for each reason why workloads cannot be loaded."""
    for why, names in broken.items():
        click.echo(f"tracekit: skipped {', '.join(names)}: {why}; see `tracekit doctor`", err=True)


def _abbreviate_levels(levels: Sequence[str]) -> str:
    missing = [level for level in LEVELS if level not in levels]
    if len(missing) > 1 or len(levels) + len(missing) > len(LEVELS):
        return ", ".join(levels)
    return f"all but {missing[0]}" if missing else "all"


def _text(value: Any) -> Any:
    """Format names, or options that may be nested, as text."""
    if not isinstance(value, Mapping):
        return ", ".join(value) if isinstance(value, tuple) else value
    nested = any(isinstance(item, Mapping) for item in value.values())
    pairs = (f"{name}{':' if nested else ''} {_text(item)}" for name, item in value.items())
    return ("; " if nested else ", ").join(pairs)
