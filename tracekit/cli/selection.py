"""Options with which `analyze` and `findings` select a run, its ranks, analyses, and workers that read it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tracekit import registry
from tracekit.cli import completion, options
from tracekit.cli import lazy_click as click
from tracekit.errors import RunNotFoundError, UnusableInputError, did_you_mean

if TYPE_CHECKING:
    from tracekit.analysis import Analyze
    from tracekit.runs.run import Run

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Values of the options that `selection_options` adds to a command."""

    run: str  # run reference, path, or name of an analysis of the latest run
    names: tuple[str, ...]  # analyses; all if empty
    ranks: tuple[str, ...]  # ranks or ranges of them; all if empty
    peaks: str | None  # name of a listed device or a file, whose peaks replace those of the run's devices
    scheduler: str | None  # address of a Dask cluster
    captures: tuple[str, ...]  # traces of graph captures, for an import
    fresh: bool  # ignore cached results
    store: str | None  # place of the store

    def open(self, run: str, names: tuple[str, ...]) -> Run:
        """Return the selected ranks of a run, with the given peaks; `Store.resolve` finds a stored run.

        Args:
            run: Run reference or path, as `split_arguments` returns it; may be a misspelt analysis.
            names: Analyses to run; all if empty.

        Raises:
            RunNotFoundError: Nothing, or more than one run, matches.
            UnusableInputError: The ranks or the peaks are unusable.
        """
        from tracekit import analysis
        from tracekit.ingest.references import resolve

        try:
            captures = options.capture_traces(self.captures)
            meanwhile = None if names else analysis.available
            store = options.open_store(self.store)
            opened = resolve(store, run, captures=captures, meanwhile=meanwhile)
        except RunNotFoundError as error:  # a word that is no run may be meant as an analysis of the latest
            error.hint = did_you_mean(run, registry.names(registry.ANALYSES)) or error.hint
            raise
        return options.with_peaks(select_ranks(opened, self.ranks), self.peaks, names)

    def answer(
        self,
        run: Run,
        names: Sequence[str],
        words: Sequence[object],
        kind: type[_Answer],
        compute: Callable[[Analyze], _Answer],
    ) -> _Answer:
        """Return what a command shows, cached (`ResultCache.answer`) or computed with `open_analyze`.

        Args:
            run: The run, of the selected ranks.
            names: Analyses whose results are shown; all if empty.
            words: What is asked, such as the command and its arguments; part of the key of the cache.
            kind: Type of the answer.
            compute: Makes the answer from results of analyses.
        """
        from tracekit.analysis.cache import ResultCache

        def compute_with_cache() -> _Answer:
            with self.open_analyze(run, names) as analyze:
                return compute(analyze)

        result_cache = ResultCache(options.open_store(self.store), fresh=self.fresh)
        return result_cache.answer(run, names, words, kind, compute_with_cache)

    @contextmanager
    def open_analyze(self, run: Run, names: Sequence[str]) -> Iterator[Analyze]:
        """Yield a function that runs analyses, or reads their results from the cache, while workers exist.

        Workers, of the cluster or processes of this machine, take a rank each. Without any, a second process
        may compute ahead.

        Args:
            run: The run, of the selected ranks.
            names: Analyses that will be asked for, in the order of `order_by_facts`; all if empty.

        Raises:
            TracekitError: The cluster cannot be used.
        """
        from tracekit import analysis
        from tracekit.analysis.by_rank import count_processes, keep_facts
        from tracekit.analysis.cache import ResultCache
        from tracekit.executors import workers

        loaded = analysis.order_by_facts([*map(analysis.get, names)] or analysis.available())
        keep_facts(run)
        gc.freeze()  # the libraries, which are loaded now, stay
        count = None if self.scheduler else count_processes(run)  # None: as many as the cluster has
        with nullcontext() if count == 0 else workers(self.scheduler, count=count) as pool:
            result_cache = ResultCache(options.open_store(self.store), fresh=self.fresh, workers=pool)
            with result_cache.compute_ahead(run, [each.name for each in loaded]):
                yield result_cache.analyze


selection_options = options.gather(
    "selection",
    Selection,
    click.argument("run", default="latest", required=False, shell_complete=completion.run_or_analysis),
    click.argument("names", nargs=-1, metavar="[ANALYSIS]...", shell_complete=completion.analysis),
    click.option(
        "--rank",
        "ranks",
        multiple=True,
        metavar="N",
        help="Read only this rank or range, such as 0-7; repeatable. `all` reads all ranks at once, whatever "
        "memory that takes.",
    ),
    options.peaks_option,
    options.scheduler_option("Analyze ranks on the workers of this Dask cluster,"),
    options.capture_option,
    options.fresh_option,
    options.store_option,
)
"""Add the arguments and options of a `Selection`, which the command receives by this keyword."""


def select_ranks(run: Run, ranks: Sequence[str]) -> Run:
    """Restrict a run to the selected ranks, if any.

    Raises:
        UnusableInputError: A selection is not a rank or range, or the run does not have it.
    """
    if not ranks:
        return run
    if "all" in ranks:
        return run.of_ranks(*run.ranks)
    return run.of_ranks(*(rank for word in ranks for rank in _parse_ranks(word)))


def _parse_ranks(word: str) -> range:
    first, dash, last = word.partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash) and int(first) <= int(last or first):
        return range(int(first), int(last or first) + 1)
    raise UnusableInputError(
        f"--rank {word!r} is not a rank or range", hint="use --rank 17, --rank 0-7 or --rank all"
    )


def split_arguments(run: str, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Split the arguments into a run and analyses; a first argument that names an analysis means `latest`.

    Raises:
        UnusableInputError: An analysis does not exist.
    """
    analyses = registry.names(registry.ANALYSES)
    if run in analyses:
        run, names = "latest", (run, *names)
    for name in names:
        if name not in analyses:
            hint = did_you_mean(name, analyses) or f"known: {', '.join(analyses)}"
            raise UnusableInputError(f"unknown analysis {name!r}", hint=hint)
    return run, names
