"""`tracekit collect`: profile a built-in workload or a program, and summarize the new runs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from click.core import ParameterSource

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, options_of, store_option
from tracekit.cli.progress import note
from tracekit.errors import ProgramFailedError
from tracekit.recording.agent.agent import ProgramOptions
from tracekit.workloads.options import RecordingOptions, WorkloadOptions, check, list_options

if TYPE_CHECKING:
    from tracekit.analysis import Result
    from tracekit.recording.collector import Program
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


SUMMARY = "gpu_breakdown"
"""Analysis whose table ends the summary of a run that kept a device busy."""
HOST = "host_breakdown"
"""The same of other runs."""
_LEFT_OUT = ("total_ns", "calls", "source", "samples")
"""Columns of the table of `HOST` that the summary leaves out."""
MAX_SUMMARY_ROWS = 8
MIN_COMMUNICATION_SHARE = 0.05
"""Exposed communication, as a share of the window, from which its analysis is suggested."""


def _print_runs(runs: list[Run], output_format: str, *, err: bool = False) -> None:
    """Print new runs; on stderr where stdout is the program's."""
    ids = [run.id for run in runs]
    if output_format == "json":
        from tracekit import render

        click.echo(render.json_text("collect", runs=ids), nl=False, err=err)
    elif output_format == "csv":
        click.echo("\n".join(["run", *ids]), err=err)
    elif output_format == "markdown":
        click.echo("\n".join(["| run |", "| --- |", *(f"| {name} |" for name in ids)]), err=err)
    else:
        print_summary(runs[-1], err=err)


def print_summary(run: Run, *, err: bool = False) -> None:
    """Print whether a run can be trusted, what bounds it, its step time, and where the time went."""
    from tracekit import analysis, render
    from tracekit.analysis.verdict import INTEGRITY, integrity_line, judge
    from tracekit.render.facts import describe_step_time
    from tracekit.runs import step_times
    from tracekit.runs.environment import program_settings

    analyze = cache(analysis.analyze)  # the verdict follows from the same results
    click.echo(integrity_line(analyze(run, INTEGRITY)), nl=False, err=err)
    if run.meta.profiled:
        click.echo(judge(run, by=analyze).sentence, err=err)
    timed = step_times.unprofiled_step_time(run.meta.timings)
    if timed and run.meta.timings:
        click.echo(f"\n{describe_step_time(timed, run.meta.timings)}", err=err)
        _print_overhead(analyze(run, INTEGRITY), err=err)
    if step := program_settings(run.meta.environment).get("step"):
        click.echo(f"A step {step}", err=err)

    name = _suggest_analysis(analyze(run, SUMMARY))
    shown, table_name = (HOST, "by_name") if name == HOST else (SUMMARY, "whole")
    spec = next(spec for spec in analysis.get(shown).tables if spec.name == table_name)
    table = analyze(run, shown).tables.get(table_name)
    if table is not None:
        columns = [column for column in spec.columns if column.name not in _LEFT_OUT]
        more = f"`tracekit analyze {run.id} {shown} --limit 0` shows all"
        text = render.table_text(table, columns, title=spec.title, limit=MAX_SUMMARY_ROWS, show_all=more)
        click.echo("\n" + text, nl=False, err=err)
    if run.meta.profiled:
        note(f"tracekit: see `tracekit analyze {run.id} {name}`, and `tracekit findings {run.id}` for advice")


def _print_overhead(integrity: Result, *, err: bool) -> None:
    """Print what profiling costs, if it is known."""
    checks = integrity.tables["checks"]
    known = checks[(checks["check"] == "profiler_overhead") & checks["share"].notna()]
    for detail in known["detail"]:
        click.echo(f"Profiling: {detail}", err=err)


def _suggest_analysis(breakdown: Result) -> str:
    """Return the analysis of what took most of the time, from the result of `gpu_breakdown`."""
    devices = breakdown.tables.get("profiled_steps", breakdown.tables.get("whole"))
    if devices is None or devices.empty:
        return HOST
    total = devices.sum(numeric_only=True)
    if total["communication_exposed_ns"] >= MIN_COMMUNICATION_SHARE * total["window_ns"]:
        return "collectives"
    return "idle_gaps" if total["idle_ns"] > total["active_ns"] else "kernels"


def _check_arguments(ctx: click.Context, *, program: tuple[str, ...], workload: str | None) -> None:
    """Refuse both or neither of a workload and a program, and options of the other."""
    if program and workload:
        raise click.UsageError(f"--workload {workload} and the program {program[0]} cannot be combined.")
    if not program and not workload:
        raise click.UsageError("Give a built-in workload with --workload, or your program after --.")
    others = WorkloadOptions if program else ProgramOptions
    flags = [
        option.flag
        for option in list_options(others)
        if ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if flags:
        kind, advice = (
            ("a built-in workload", "pass your program's options after its name")
            if program
            else ("your program", "for a workload, use --warmup")
        )
        is_are = "is an option" if len(flags) == 1 else "are options"
        raise click.UsageError(f"{', '.join(flags)} {is_are} of {kind}; {advice}.")


def record_program(store: Store, program: Program, *, output_format: str) -> int:
    """Run the program, report the new runs on standard error, and return the program's exit code.

    Args:
        store: Where the runs are stored.
        program: What to run, and how often.
        output_format: One of `FORMATS`.
    """
    from tracekit.recording.collect import collect_program
    from tracekit.runs.meta import PROCESS_NOT_RECORDED

    runs: list[Run] = []
    code = done = 0
    while done < program.repeat and not code:
        try:
            recorded = collect_program(store, program, progress=_progress)
        except ProgramFailedError as error:
            click.echo(f"tracekit: {error.message}; {error.hint}", err=True)
            return error.program_code
        done += 1
        runs += recorded
        code = (recorded[0].meta.workload or {}).get("exit_code", 0)
        if output_format == "table":
            click.echo("\n".join(run.id for run in recorded), err=True)
    if len(recorded) > 1:
        text = "each window, and each process that is no rank, is a run"
        click.echo(f"tracekit: {len(recorded)} runs: {text}", err=True)
    messages = {
        diagnostic.message
        for run in recorded
        for diagnostic in run.meta.diagnostics
        if diagnostic.level != "info" or diagnostic.code == PROCESS_NOT_RECORDED
    }
    for message in sorted(messages):
        click.echo(f"tracekit: {message}", err=True)
    _print_runs(runs, output_format, err=True)
    return code


def _progress(part: str, done: int, _total: int) -> None:
    """Report the import; the program uses the terminal until then."""
    if part == "import" and done == 0:
        note("tracekit: program finished; importing the profile")


_PANELS = {
    title: [option.flag for option in list_options(kind)]
    for title, kind in (
        ("Options", RecordingOptions),
        ("Your program", ProgramOptions),
        ("Built-in workload", WorkloadOptions),
    )
}
"""Flags under each heading of the help page."""


@click.command("collect", panels=_PANELS, context_settings={"allow_interspersed_args": False})
@click.argument(
    "program", metavar="[-- PROGRAM...]", nargs=-1, type=click.UNPROCESSED, shell_complete=completion.file
)
@options_of(recording=RecordingOptions, window=ProgramOptions, workload=WorkloadOptions)
@store_option
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    program: tuple[str, ...],
    store: str | None,
    output_format: str,
    recording: RecordingOptions,
    window: ProgramOptions,
    workload: WorkloadOptions | None,
) -> int:
    """Profile a built-in workload, or your program, into the store.

    A new process times the steps without a profiler, then profiles as many again (unless --no-profile).
    Prints the id of the new run, whether its numbers can be trusted, and a summary of where the time went.

    Your program runs unchanged: same arguments, standard streams, signals and exit code. A step ends with
    the step() of its first optimizer; without an optimizer, when the first module it calls returns; or at
    each call of `tracekit.step()`. Profiling starts after --start-step steps, which are timed without the
    profiler. All ranks become one run.

    Standard output is your program's: the run id and the summary (see --format) go to standard error. The
    exit code is the program's; 5 means that nothing was recorded.

    \b
    tracekit collect --workload resnet50
    tracekit collect --workload mnist_cnn --mode infer --batch-size 256 --label big
    tracekit collect --workload resnet50 --zero-grad zero --repeat 5 --format json
    tracekit collect --workload vgg16 --dataset-shape cifar10
    tracekit collect --workload resnet50 --level compile --backend aot_eager
    tracekit collect -- python train.py --lr 0.1
    tracekit collect --start-step 10 --steps 3 --label wide -- python -m pkg.train
    tracekit collect -- torchrun --nproc-per-node 2 train.py
    """  # noqa: D301 (click reads the \b)
    _check_arguments(ctx, program=program, workload=workload.workload if workload else None)
    destination = open_store(store)  # before the imports, which take long: its address may be invalid
    from tracekit.recording.collect import collect
    from tracekit.recording.collector import Program, Request

    if workload is None:  # there is no --workload, so `options_of` cannot make a WorkloadOptions
        own_program = Program(command=program, **vars(recording), **vars(window))
        check(own_program)
        return record_program(destination, own_program, output_format=output_format)
    from tracekit.cli.progress import step_progress

    request = Request(**vars(recording), **vars(workload))
    check(request)
    runs = []
    for number in range(1, request.repeat + 1):
        with step_progress(f"{number}/{request.repeat} " if request.repeat > 1 else "") as progress:
            run = collect(destination, request, progress=progress)
        runs.append(run)
        if output_format == "table":
            click.echo(run.id)  # printed now, as a later run may fail
    _print_runs(runs, output_format)
    return 0
