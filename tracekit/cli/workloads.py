"""`tracekit workloads`: what `tracekit collect` can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from tracekit.cli.options import format_option

if TYPE_CHECKING:
    from tracekit.workloads.base import Workload

SCHEMA = "tracekit.workloads/1"


@click.command("workloads")
@format_option
def command(*, output_format: str) -> None:
    """List the workloads that `tracekit collect --workload NAME` can run.

    All of them use random data and download nothing; torch is not needed to list them.
    """
    from tracekit import registry
    from tracekit.errors import TracekitError

    found = []
    for name in registry.names(registry.WORKLOADS):
        try:
            found.append(_row(registry.load(registry.WORKLOADS, name)))
        except TracekitError as error:
            click.echo(f"tracekit: {error.message}; see `tracekit doctor`", err=True)
    _print(found, output_format)


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


def _print(found: list[dict[str, Any]], output_format: str) -> None:
    from tracekit.cli.rows import print_rows

    print_rows(found, schema=SCHEMA, key="workloads", output_format=output_format)
