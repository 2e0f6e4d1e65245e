"""`tracekit workloads`: what `tracekit collect` can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from tracekit.cli.options import format_option

if TYPE_CHECKING:
    from tracekit.workloads.base import Workload

_COLUMNS = {
    "name": ("", "name to give to `tracekit collect --workload`"),
    "domain": ("", "field it comes from"),
    "parameters": ("count", "trainable parameters with the defaults"),
    "modes": ("", "what `--mode` takes"),
    "levels": ("", "what `--level` takes"),
    "dtypes": ("", "what `--dtype` takes"),
    "defaults": ("", "options where none is given"),
    "summary": ("prose", "what it is"),
}
_TABLE = {name: _COLUMNS[name] for name in ("name", "domain", "parameters", "modes", "levels", "summary")}


@click.command("workloads")
@format_option
def command(*, output_format: str) -> None:
    """List the workloads that `tracekit collect --workload NAME` can run.

    All of them use random data and download nothing; torch is not needed to list them.
    """
    from tracekit import registry
    from tracekit.analysis import Column
    from tracekit.errors import TracekitError

    found = []
    for name in registry.names(registry.WORKLOADS):
        try:
            found.append(_row(registry.load(registry.WORKLOADS, name)))
        except TracekitError as error:
            click.echo(f"tracekit: {error.message}; see `tracekit doctor`", err=True)
    from tracekit import render

    if output_format != "json":
        found = [{name: _text(value) for name, value in row.items()} for row in found]
    shown = _TABLE if output_format == "table" else _COLUMNS
    columns = [Column(name, unit, meaning) for name, (unit, meaning) in shown.items()]
    click.echo(
        render.rows(found, columns, output_format, command="workloads", key="workloads", limit=0), nl=False
    )


def _row(workload: Workload) -> dict[str, Any]:
    return {
        "name": workload.name,
        "domain": workload.domain,
        "parameters": workload.parameters,
        "modes": list(workload.modes),
        "levels": list(workload.levels),
        "dtypes": list(workload.dtypes),
        "defaults": dict(workload.defaults),
        "summary": workload.summary,
    }


def _text(value: Any) -> Any:
    """A list or mapping as people write it."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return ", ".join(value) if isinstance(value, list) else value
