"""Options to select ranks of a run, and where to read them."""

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
    help="Read only this rank or range, such as 0-7; repeatable. `all` reads all ranks at once, whatever "
    "memory that takes.",
)


def narrowed(run: Run, ranks: Sequence[str]) -> Run:
    """Restrict a run to the selected ranks, if any.

    Raises:
        UnusableInputError: A selection is not a rank or range, or the run does not have it.
    """
    if not ranks:
        return run
    if ALL in ranks:
        return run.of_ranks(*run.ranks)
    return run.of_ranks(*(rank for word in ranks for rank in _numbers(word)))


def _numbers(word: str) -> range:
    from tracekit.errors import UnusableInputError

    first, dash, last = word.partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash) and int(first) <= int(last or first):
        return range(int(first), int(last or first) + 1)
    raise UnusableInputError(
        f"--rank {word!r} is not a rank or range", hint="use --rank 17, --rank 0-7 or --rank all"
    )


@contextmanager
def reading(run: Run, scheduler: str | None) -> Iterator[Workers | None]:
    """Start the workers that read the ranks of a run, if any: a cluster or processes of this machine.

    Raises:
        TracekitError: The cluster cannot be used.
    """
    from tracekit.by_rank import processes
    from tracekit.fleet import workers

    count = None if scheduler else processes(run)
    if count == 0:
        yield None
        return
    with workers(scheduler, count=count) as started:
        yield started
