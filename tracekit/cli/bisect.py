"""`tracekit bisect`: find the commit, or package version, that made a program slower."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli import options
from tracekit.cli.progress import explain_end, note
from tracekit.errors import clean
from tracekit.experiments.options import BisectOptions

if TYPE_CHECKING:
    from tracekit.experiments.bisect_request import BisectRequest


@click.command("bisect")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="GOOD..BAD -- CMD...")
@options.options_of(chosen=BisectOptions, strict=True)
@click.option(
    "--restart", "fresh", aliases=("--fresh",), is_flag=True, help="Discard earlier measurements of this CMD."
)
@options.result_options(options.VERDICTS)
@options.store_option
def command(
    *,
    words: tuple[str, ...],
    chosen: BisectOptions,
    fresh: bool,
    output: options.Output,
    store: str | None,
) -> int:
    """Find the commit between GOOD and BAD at which CMD became slower, or another metric changed.

    Each call first measures both ends, then the most informative commits between them, each in new processes
    in a separate git worktree; your files are not touched. A commit is repeated until it is good or bad with
    a posterior probability of 0.95. If the change has two causes, both are found. The culprit and its parent
    are measured again, alternating, to confirm it. A commit at which CMD fails is skipped and reported; exit
    with 125 to skip a commit on purpose.

    For `tracekit collect`, a number of ops, kernels or copied bytes per step that differs between the ends is
    searched first (--signature), with one run per commit; the step times at its commit are then measured and
    printed. If the step time changes elsewhere, or with --metric, it is searched itself.

    Measurements are stored by commit, command and machine: to resume after an interruption, run the same
    command again.

    Exit codes: 0 found, 2 unusable, 3 cannot tell (the ends do not differ), 5 an end cannot be measured.

    \b
    tracekit bisect v1.0..main -- tracekit collect --workload resnet50
    tracekit bisect v1.0.. --value 'step: ([0-9.]+) ms' -- python bench.py
    tracekit bisect v1.0.. --signature launches -- tracekit collect --workload resnet50
    tracekit bisect --dep torch --versions 2.11.0,2.12.0,2.13.0 \\
        --prepare 'venv/bin/pip install torch=={version}' -- venv/bin/python bench.py
    """  # noqa: D301 (click reads the \b)
    from tracekit.experiments.bisect import bisect
    from tracekit.experiments.bisect_request import BisectRequest
    from tracekit.render.bisect import render

    runs = options.open_store(store)
    request = BisectRequest.create(words, chosen, store=store)
    cache = request.open_cache(runs, fresh=fresh)
    with explain_end("measurements are saved"), request.open_runner(runs) as runner:
        bisection = bisect(
            request.search,
            runner,
            cache,
            report=lambda text: note(clean(text)),
            command=_repeat_command(request, words),
            explain=request.explain,
        )
    output.write(partial(render, bisection))
    return int(bisection.exit_code)


def _repeat_command(request: BisectRequest, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that repeats the search, with commit ids in place of branches."""
    values = {**vars(request.options), "store": request.store}
    command_line = ["tracekit", "bisect"]
    context = click.Context(command)
    for param in command.params:
        value = values.get(str(param.name))
        if value is None or value is False or value in ("", ()):
            continue
        name, parts = param.opts[0], value if isinstance(value, tuple) else (value,)
        if not param.multiple and value == param.type_cast_value(context, param.get_default(context)):
            continue
        command_line += (
            [name] if value is True else [word for part in parts for word in (name, _format(part))]
        )
    if request.options.dep:
        return (*command_line, "--", *words)
    good, bad = (request.search.subjects[place].short for place in (0, -1))
    return (*command_line, f"{good}..{bad}", "--", *words[1:])


def _format(value: object) -> str:
    """Format a value as a command-line argument; a share as an exact percentage."""
    return f"{(Decimal(str(value)) * 100).normalize():f}%" if isinstance(value, float) else str(value)
