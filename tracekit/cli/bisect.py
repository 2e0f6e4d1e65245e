"""`tracekit bisect`: which commit, or version of a package, made a program slower."""

from __future__ import annotations

from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import (
    METRICS,
    open_store,
    report_option,
    setup_option,
    store_option,
    threshold_option,
    unit_option,
    value_option,
    warmup_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.bisecting import Bisection, Search
    from tracekit.bisecting.asking import Question
    from tracekit.bisecting.model import Subject


@click.command("bisect")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="GOOD..BAD -- CMD...")
@click.option(
    "--metric",
    type=click.Choice(METRICS),
    help="What jumped. Default: step_time of `tracekit collect` or of --value, else wall.",
)
@value_option("Read the value from what CMD prints: the first group.")
@unit_option("Unit of what CMD prints.")
@click.option(
    "--reps",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    help="Measurements of every commit; doubtful ones are repeated.",
)
@warmup_option("Measurements of every commit that do not count: they fill caches.")
@threshold_option("Change between the ends below which nothing is searched.")
@click.option("--skip", multiple=True, metavar="REV", help="Do not measure this one; may be repeated.")
@click.option(
    "--path", "paths", multiple=True, help="Only commits that change this file or folder, from the root."
)
@click.option("--all-parents", is_flag=True, help="Search the commits of merged branches as well.")
@click.option(
    "--signature",
    metavar="COUNT",
    help="Search a count per step instead, in one run per commit: kernels, copies, memsets, launches, ops, "
    "or the name of an op or a part of a kernel's name. CMD is `tracekit collect`.",
)
@setup_option("Shell command that builds each worktree, once.")
@click.option("--dep", metavar="PACKAGE", help="Search the versions of a package instead of commits.")
@click.option("--versions", metavar="LIST", help="Its versions from good to bad, separated by commas.")
@click.option(
    "--prepare",
    metavar="CMD",
    default="",
    help="Shell command that installs a version, as in `venv/bin/pip install torch=={version}`.",
)
@click.option("--fresh", is_flag=True, help="Forget what earlier calls measured with this CMD.")
@report_option
@store_option
def command(
    *,
    words: tuple[str, ...],
    store: str | None,
    output_format: str,
    **options: Any,
) -> int:
    """Find the commit between GOOD and BAD at which CMD became slower, or a metric changed otherwise.

    Both ends are measured again in every call, then the commits between them that tell most, each in fresh
    processes in a git worktree of its own; your files are not touched. A commit is good or bad when that is
    sure (posterior of 0.95), and is measured again until it is. Where the jump is made of two, both are
    found. Before a commit is blamed, it and the one before it are measured again in turn. A commit at which
    CMD fails is left out and named; exit with 125 to leave one out on purpose.

    What was measured is kept in the store by commit, command and machine: after an interruption the same
    call goes on where it stopped.

    Exit codes: 0 found, 2 unusable, 3 cannot tell (the ends do not differ), 5 an end cannot be measured.

    \b
    tracekit bisect v1.0..main -- tracekit collect --workload resnet50
    tracekit bisect v1.0.. --value 'step: ([0-9.]+) ms' -- python bench.py
    tracekit bisect v1.0.. --signature launches -- tracekit collect --workload resnet50
    tracekit bisect --dep torch --versions 2.11.0,2.12.0,2.13.0 \\
        --prepare 'venv/bin/pip install torch=={version}' -- venv/bin/python bench.py
    """  # noqa: D301 (click reads the \b)
    found = _found(words, store, **options)
    from tracekit.render import bisect as render

    writers = {"json": render.as_json, "markdown": render.as_markdown, "table": render.as_text}
    click.echo(writers[output_format](found), nl=False)
    return int(found.exit_code)


def _found(words: tuple[str, ...], place: str | None, *, fresh: bool, **options: Any) -> Bisection:
    from tracekit.bisecting import bisect
    from tracekit.bisecting.asking import asked

    store, question = open_store(place), asked(words, place=place, **options)
    cache = question.cache(store, fresh=fresh)
    with _kept_when_interrupted(), question.lab(store) as lab, _progress(question.search) as told:
        return bisect(
            question.search,
            lab,
            cache,
            told=told,
            command=_again(question, words, {**options, "store": place}),
            explain=question.explain,
        )


def _again(question: Question, words: tuple[str, ...], options: dict[str, Any]) -> tuple[str, ...]:
    """The words that search the same again, also when branches have moved on."""
    found = ["tracekit", "bisect"]
    context = click.Context(command)
    for param in command.params:
        value = options.get(str(param.name))
        if value is None or value is False or value in ("", ()):
            continue
        name, many = param.opts[0], value if isinstance(value, tuple) else (value,)
        if not param.multiple and value == param.type_cast_value(context, param.get_default(context)):
            continue
        found += [name] if value is True else [word for one in many for word in (name, _word(one))]
    if options["dep"]:
        return (*found, "--", *words)
    good, bad = (question.search.subjects[at].short for at in (0, -1))
    return (*found, f"{good}..{bad}", "--", *words[1:])


def _word(value: object) -> str:
    """A value as it is typed; a share in percent, to the last digit."""
    return f"{(Decimal(str(value)) * 100).normalize():f}%" if isinstance(value, float) else str(value)


@contextmanager
def _kept_when_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("tracekit: what was measured is kept; the same call goes on from there", err=True)
        raise


@contextmanager
def _progress(search: Search) -> Iterator[Callable[[Subject, str], None]]:
    """A line on stderr for each measurement."""
    places = {one.key: at for at, one in enumerate(search.subjects)}

    def line(subject: Subject, problem: str) -> None:
        from tracekit.render import clean

        what = f"left out, {problem}" if problem else "measured"
        where = f"{places[subject.key]}/{search.last} {subject.short}"
        click.echo(clean(f"{where} {subject.title[:60]}: {what}"), err=True)

    yield line
