"""`tracekit doctor`: what can be collected here, and what is missing and why."""

from __future__ import annotations

from dataclasses import asdict

from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, store_option

_COLUMNS = {
    "name": ("", "what was looked at"),
    "status": ("", "ok, warn or missing"),
    "detail": ("prose", "what was found"),
    "next_step": ("prose", "what to do about it"),
}


@click.command("doctor")
@store_option
@format_option
@click.option(
    "--compile",
    "compiling",
    is_flag=True,
    help="Compile the fast decoder of imports now, which takes seconds; the first large import does it else.",
)
def command(*, store: str | None, output_format: str, compiling: bool) -> int:
    """Say what can be collected here, and what is missing and what to do about it.

    Each check is ok, warn (something is limited) or missing (something cannot be done). Exits with 5 where
    nothing can be collected because torch is missing; reading and analyzing runs works all the same.
    """
    from tracekit import doctor, render
    from tracekit.analysis import Column
    from tracekit.errors import ExitCode
    from tracekit.store import locate

    if compiling:
        doctor.compile_scanner()
    checks = doctor.examine(locate(store))
    columns = [Column(name, unit, meaning) for name, (unit, meaning) in _COLUMNS.items()]
    rows = [asdict(check) for check in checks]
    click.echo(render.rows(rows, columns, output_format, command="doctor", key="checks", limit=0), nl=False)
    return ExitCode.OK if doctor.can_collect(checks) else ExitCode.NOTHING_MEASURED
