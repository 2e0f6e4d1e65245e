"""`tracekit try`: measure what changes do to a program."""

from __future__ import annotations

from functools import partial

from tracekit.cli import completion, options
from tracekit.cli import lazy_click as click
from tracekit.cli.progress import explain_end, note
from tracekit.experiments.options import TryOptions


class _Command(click.Command):
    """A command whose last argument is all that follows the first `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words after `--` apart: click would give the first ones to the arguments before."""
        place = args.index("--") if "--" in args else len(args)
        ctx.params["words"] = tuple(args[place + 1 :])
        return super().parse_args(ctx, args[:place])


@click.command("try", cls=_Command)
@click.argument("run", metavar="[RUN] -- CMD...", required=False, shell_complete=completion.run)
@options.options_of(chosen=TryOptions, strict=True)
@click.option("--budget", type=options.Age(), help="Time for all runs, such as 10m.")
@options.result_options(options.REPORTS)
@options.store_option
def command(
    *,
    run: str | None,
    words: tuple[str, ...],
    chosen: TryOptions,
    budget: float | None,
    output: options.Output,
    store: str | None,
) -> int:
    """Measure which changes make CMD faster, without an edit of it.

    Each change, such as `foreach` optimizers, workers of a data loader, bfloat16 or `torch.compile`, is made
    inside the running program by the agent of `tracekit collect`. It is compared with the unchanged program
    until it is decided: it helps, is slower, has no effect above --threshold, or "cannot tell". Changes that
    can be turned off again are turned on and off between the steps of one process; others are made in
    processes that alternate with those of the unchanged program. One that finds nothing to change is "not
    applied".

    By default, CMD is recorded once (or RUN is used), and the changes that its findings recommend or that
    fit its settings are tried; --change names others. CMD may be `tracekit collect [OPTIONS] -- PROGRAM`.
    To resume after an interruption, run the same command again.

    \b
    tracekit try -- python train.py
    tracekit try --change foreach --change bfloat16 --check-value 'loss: ([0-9.]+)' -- python train.py
    tracekit try latest --combine --budget 10m -- tracekit collect --start-step 20 -- python train.py
    """  # noqa: D301 (click reads the \b)
    from tracekit.experiments.trial import TryRequest, try_changes
    from tracekit.render.trial import render

    if not words:
        raise click.UsageError("Give the program to try changes in after --.")
    place = options.open_store(store)
    request = TryRequest(command=words, budget_s=budget, **vars(chosen))
    with explain_end("completed runs are saved"):
        try_changes(
            place,
            request,
            run=place.resolve(run) if run else None,
            say=lambda text: note(f"tracekit: {text}"),
            progress=note,
            on_report=lambda report: output.write(partial(render, report)),
        )
    return 0
