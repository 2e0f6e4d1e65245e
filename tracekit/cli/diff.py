"""`tracekit diff`: compare two runs and break down the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tracekit.cli import completion, options, progress
from tracekit.cli import lazy_click as click
from tracekit.errors import ExitCode

_VIEWS = ("op", "module", "kernel")


@click.command("diff")
@click.argument(
    "references", nargs=-1, required=True, metavar="A B | BASE..HEAD", shell_complete=completion.run
)
@click.option(
    "--by", type=click.Choice(_VIEWS), default="op", show_default=True, help="Group causes by this."
)
@click.option(
    "--varying",
    multiple=True,
    metavar="FIELD",
    help="Ignore this difference, such as torch, gpu or batch_size; repeatable.",
)
@click.option(
    "--threshold",
    type=options.Percent(),
    default="7%",
    show_default=True,
    help="Smallest change of the step time that matters.",
)
@click.option(
    "--exit-code", "use_exit_code", is_flag=True, help="Exit with 1 on a regression and 3 if inconclusive."
)
@click.option(
    "--explain/--no-explain",
    default=True,
    show_default=True,
    help="Run the analyses that compare: causes of idle time, copies, launches.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Maximum rows per table, 0 for all.",
)
@options.result_options((*options.FORMATS, "html"), what="comparison", also=True)
@options.store_option
def command(
    *,
    references: tuple[str, ...],
    by: str,
    varying: tuple[str, ...],
    threshold: float,
    use_exit_code: bool,
    explain: bool,
    limit: int | None,
    output: options.Output,
    store: str | None,
) -> int:
    """Compare run B with run A and break down the difference.

    A and B are run ids or their prefixes, `latest~1`, labels, `git:REV`, or paths of runs or of raw traces.
    A label or a commit means all its runs. BASE..HEAD means the runs of two git revisions.

    Runs of different work (batch size, shapes, GPU, ...) are not compared, and the exit code is 4, unless the
    difference is ignored with --varying.
    """
    from tracekit.diff import Options, diff, model
    from tracekit.diff.model import Verdict
    from tracekit.render.diff import render
    from tracekit.stats.comparison import exit_code

    runs, names = options.open_store(store), model.pair(references)
    base, head = (model.runs_of(runs, name) for name in names)
    unlike = tuple(filter(None, dict.fromkeys(model.note_left_out(runs, name) for name in names)))
    chosen = Options(by=by, varying=varying, threshold=threshold, explain=explain)
    with _progress() as progress:
        compared = diff(
            base, head, references=names, options=chosen, progress=progress, recorded=runs.readable()
        )
    compared = replace(compared, warnings=(*unlike, *compared.warnings))
    decides = use_exit_code or compared.verdict is Verdict.NOT_COMPARABLE
    code = int(exit_code(compared.verdict) if decides else ExitCode.OK)
    output.write(partial(render, compared, limit=limit, exit_code=code))
    return code


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the current stage on stderr, if it is a terminal."""
    console = progress.terminal_console()
    if console is None:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda part: status.update(part)
