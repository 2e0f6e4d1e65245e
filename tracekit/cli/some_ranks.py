"""Options of commands that read runs of many ranks: which of them, and where."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.fleet import Workers
    from tracekit.run import Run

ALL = "all"

rank_option = click.option(
    "--rank",
    "ranks",
    multiple=True,
    metavar="N",
    help="Only this rank of the run, or a range such as 0-7; may be given more than once. `all` reads every "
    "rank at once, however much memory that takes.",
)


def narrowed(run: Run, asked: Sequence[str]) -> Run:
    """The ranks of a run that an invocation asks for; the run itself where it asks for none.

    Raises:
        UnusableInputError: What is asked for is no rank, or the run does not have it.
    """
    if not asked:
        return run
    if ALL in asked:
        return run.of_ranks(*run.ranks)
    return run.of_ranks(*(rank for word in asked for rank in _numbers(word)))


def _numbers(word: str) -> range:
    from tracekit.errors import UnusableInputError

    first, dash, last = word.partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash) and int(first) <= int(last or first):
        return range(int(first), int(last or first) + 1)
    raise UnusableInputError(f"--rank {word!r} names no rank", hint="say --rank 17, --rank 0-7 or --rank all")


@contextmanager
def reading(run: Run, scheduler: str | None) -> Iterator[Workers | None]:
    """What reads the ranks of a run: a cluster, processes of this machine, or none but this one.

    Raises:
        TracekitError: The cluster cannot be used.
    """
    from tracekit.by_rank import processes
    from tracekit.fleet import workers

    count = None if scheduler else processes(run)
    if count == 0:
        yield None
        return
    with workers(scheduler, count=count) as fleet:
        yield fleet
