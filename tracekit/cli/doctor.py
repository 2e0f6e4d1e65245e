"""`tracekit doctor`: check what this machine can collect."""

from __future__ import annotations

from dataclasses import asdict

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, store_option
from tracekit.errors import ExitCode

COLUMNS = (
    Column("name", "", "name of the check"),
    Column("status", "", "ok, warn or missing"),
    Column("detail", "prose", "result of the check"),
    Column("next_step", "prose", "how to fix it"),
)


@click.command("doctor")
@store_option
@format_option
@click.option(
    "--compile",
    "compiling",
    is_flag=True,
    help="Compile the fast trace decoder now (seconds) instead of at the first large import.",
)
def command(*, store: str | None, output_format: str, compiling: bool) -> int:
    """Check what this machine can collect, and how to fix what is missing.

    Each check is ok, warn (limited) or missing (not available). Exits with 5 if nothing can be collected
    because torch is missing; importing and analyzing still work.
    """
    from tracekit.recording import doctor
    from tracekit.runs.store import locate

    if compiling:
        doctor.compile_scanner()
    checks = doctor.examine(locate(store))
    rows = [asdict(check) for check in checks]
    click.echo(render.rows(rows, COLUMNS, output_format, command="doctor", key="checks", limit=0), nl=False)
    return ExitCode.OK if doctor.can_collect(checks) else ExitCode.NOTHING_MEASURED
