"""The part of `tracekit collect` that runs the user's program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.core import ParameterSource

from tracekit.cli import lazy_click as click
from tracekit.cli.collected import show
from tracekit.errors import ProgramFailedError
from tracekit.workloads.options import ProgramOptions, WorkloadOptions, declared

if TYPE_CHECKING:
    from tracekit.collecting import Program
    from tracekit.run import Run
    from tracekit.store import Store


def choose(ctx: click.Context, *, program: tuple[str, ...], workload: str | None) -> None:
    """Refuse options that exclude each other.

    Raises:
        UsageError: Both or neither of a workload and a program are given, or an option of the other.
    """
    if program and workload:
        raise click.UsageError(f"--workload {workload} and the program {program[0]} cannot be combined.")
    if not program and not workload:
        raise click.UsageError("Give a built-in workload with --workload, or your program after --.")
    others = WorkloadOptions if program else ProgramOptions
    given = [one.flag for one in declared(others) if _is_given(ctx, one.name)]
    if given:
        kind, whose = (
            ("a built-in workload", "pass your program's options after its name")
            if program
            else ("your program", "for a workload, use --warmup")
        )
        is_are = "is an option" if len(given) == 1 else "are options"
        raise click.UsageError(f"{', '.join(given)} {is_are} of {kind}; {whose}.")


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def record(store: Store, program: Program, *, output_format: str) -> int:
    """Run the program, report the new runs on standard error, and return the program's exit code."""
    from tracekit.collecting import collect_program

    runs: list[Run] = []
    code = 0
    while len(runs) < program.repeat and not code:
        try:
            run = collect_program(store, program, progress=_progress)
        except ProgramFailedError as error:
            click.echo(f"tracekit: {error.message}; {error.hint}", err=True)
            return error.program_code
        runs.append(run)
        code = (run.meta.workload or {}).get("exit_code", 0)
        if output_format == "table":
            click.echo(run.id, err=True)
    _warn(runs[-1])
    show(runs, output_format, err=True)
    return code


def _progress(part: str, done: int, _total: int) -> None:
    """Report the import; the program uses the terminal until then."""
    if part == "import" and done == 0:
        click.echo("tracekit: program finished; importing the profile", err=True)


def _warn(run: Run) -> None:
    for diagnostic in run.meta.diagnostics:
        if diagnostic.level != "info":
            click.echo(f"tracekit: {diagnostic.message}", err=True)
