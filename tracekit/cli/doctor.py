"""`tracekit doctor`: what can be collected here, and what is missing and why."""

from __future__ import annotations

from dataclasses import asdict

import rich_click as click

from tracekit.cli.options import format_option, store_option

SCHEMA = "tracekit.doctor/1"


@click.command("doctor")
@store_option
@format_option
def command(*, store: str | None, output_format: str) -> int:
    """Say what can be collected here, and what is missing and what to do about it.

    Each check is ok, warn (something is limited) or missing (something cannot be done). Exits with 5 where
    nothing can be collected because torch is missing; reading and analyzing runs works all the same.
    """
    from tracekit import doctor
    from tracekit.cli.rows import print_rows
    from tracekit.errors import ExitCode
    from tracekit.store import locate

    checks = doctor.examine(locate(store))
    print_rows([asdict(check) for check in checks], schema=SCHEMA, key="checks", output_format=output_format)
    return ExitCode.OK if doctor.can_collect(checks) else ExitCode.NOTHING_MEASURED
