"""Analyze runs of many ranks: rank by rank if the analysis supports it, else as many ranks as fit memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit import registry
from tracekit.analysis.model import MAX_SHARED_ROWS, Analysis, Result, set_up_libraries
from tracekit.errors import PluginError, TracekitError
from tracekit.runs import rank_view
from tracekit.runs.run import RankView, Run
from tracekit.runs.text import format_ranks
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from tracekit.executors import Outcome, Workers

ROWS_AT_ONCE = 12_000_000
"""Rows of a run that an analysis reads at once: about 2 GB for the largest analysis."""
SPREAD_ROWS = 1_500_000
"""Rows from which worker processes save more time than their start takes."""
MIN_ROWS_FOR_NEW = 5_000
"""Rows from which a new process for some of the analyses saves more time than its start takes."""
BYTES_PER_ROW = 1_600
"""Memory per row that two processes may need: 3 times what they took for a recorded trace of 9.3 million."""
MIN_PIECES_PER_WORKER = 4
"""Minimum pieces per worker, so that all finish at about the same time."""
MAX_PROCESSES = 8
"""Limit of processes on one machine, as they share its memory."""
LOST = "{ranks} left out: {why}"
SAMPLED = (
    "read for {some} of {all} ranks ({ranks}), because it reads its ranks at once and all of them have "
    "{rows:,} rows: `tracekit analyze RUN {name} --rank N` reads another one, `--rank all` every rank"
)
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Limit and usage of a control group by version, and the line of `memory.stat` of what is freed on demand."""
_COUNTED = [table.name for table in TABLES.values() if C.RANK in {column.name for column in table.columns}]
_Part: TypeAlias = "tuple[tuple[int, ...], Any, TracekitError | None]"
"""Ranks, their partial result, and the error if it failed."""


def compute(analysis: Analysis, run: Run, workers: Workers | None = None) -> Result:
    """Compute an analysis of a run with any number of ranks.

    An analysis with `by_rank` computes the ranks of each piece apart and combines them; another one gets all
    ranks in one call of `Analysis.compute`, or as many of them as fit memory.
    """
    from tracekit.executors.local import InProcess

    if analysis.by_rank is None:
        return _compute_at_once(analysis, run)
    executor = workers or InProcess()
    # A single process needs no more pieces than memory demands.
    pieces = rank_view.split_by_rank(
        run, min_views=1 if executor.count < 2 else MIN_PIECES_PER_WORKER * executor.count
    )
    if len(pieces) < 2 and len(run.ranks) < 2:
        return analysis.compute(run)
    # Workers finish in any order; the result must not depend on it.
    parts = sorted(_compute_parts(analysis, executor, pieces), key=lambda part: part[0])
    lost = [(rank, error) for failed, _, error in parts if error is not None for rank in failed]
    if len(lost) == len(run.ranks):
        raise _as_plugin_error(analysis, lost[0][1])
    result = analysis.by_rank.combine(run, [part for _, part, error in parts if error is None])
    notes = (*_describe_lost(lost), *result.notes)
    return replace(result, notes=notes, incomplete=True) if lost else result


def _compute_at_once(analysis: Analysis, run: Run) -> Result:
    """Compute all ranks together, or a sample of those that fit memory."""
    chosen = sample(run)
    if chosen is None:
        return analysis.compute(run)
    result = analysis.compute(run.of_ranks(*chosen))
    note = SAMPLED.format(
        some=len(chosen),
        all=len(run.ranks),
        ranks=format_ranks(chosen),
        rows=_count_rows(run),
        name=analysis.name,
    )
    return replace(result, notes=(note, *result.notes))


def sample(run: Run) -> list[int] | None:
    """Return evenly spaced ranks that fit memory; None if all do, or if the user chose the ranks."""
    rows = _count_rows(run)
    if rows <= ROWS_AT_ONCE or not _has_unselected_ranks(run):
        return None
    ranks = run.ranks
    count = max(1, ROWS_AT_ONCE * len(ranks) // rows)
    return [ranks[place * len(ranks) // count] for place in range(count)] if count < len(ranks) else None


def count_processes(run: Run) -> int:
    """Return the number of processes on this machine for the ranks of a run; 0 for this process alone.

    Each process has the libraries and one rank in memory.
    """
    cores = len(os.sched_getaffinity(0))
    spread = _has_unselected_ranks(run) and _count_rows(run) >= SPREAD_ROWS and cores > 1
    return min(cores, MAX_PROCESSES) if spread else 0


def is_worth_two_processes(run: Run, *, forks: bool = True) -> bool:
    """Return whether two processes analyze a whole run sooner than one, and memory suffices for both.

    The second one is a fork, which only Linux allows of a process that has loaded such libraries, and which
    cannot use the connections to object storage. It takes less time than half of the analyses of a few rows.
    """
    is_alone = (
        sys.platform != "linux"
        or isinstance(run, RankView)
        or (forks and not isinstance(run.path, Path))
        or count_processes(run)
        or len(os.sched_getaffinity(0)) < 2
    )
    min_rows = 1 if forks else MIN_ROWS_FOR_NEW
    rows = _count_rows(run)
    return not is_alone and rows >= min_rows and (rows <= ROWS_AT_ONCE // 2 or has_memory(rows))


def keep_facts(run: Run) -> None:
    """Keep what the analyses of a run share in memory, if two processes have room for it.

    For processes that end with these analyses: of a run of more than `MAX_SHARED_ROWS`, a server keeps none.
    """
    rows = _count_rows(run)
    vars(run)["keeps_facts"] = rows > MAX_SHARED_ROWS and not isinstance(run, RankView) and has_memory(rows)


def has_memory(rows: int) -> bool:
    """Return whether two processes have room for what several analyses need of so many rows."""
    return rows * BYTES_PER_ROW <= _available_memory()


def _available_memory() -> int:
    """Return the bytes that this machine, and the control groups of this process, have left."""
    import psutil

    from tracekit.recording.agent.cpu_load import control_groups

    left = [psutil.virtual_memory().available]
    with suppress(OSError, ValueError):  # there are none
        left += [room for group in control_groups(controller="memory") for room in _room_in(group)]
    return min(left)


def _room_in(group: Path) -> list[int]:
    """Return the bytes that a control group has left, by the files of its version; empty without a limit."""
    for limit, usage, cached in _MEMORY_FILES:
        with suppress(OSError, ValueError):  # there is no such file, or its text is "max"
            bytes_of = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            used = int((group / usage).read_text()) - int(bytes_of.get(cached, 0))
            return [int((group / limit).read_text()) - used]
    return []


def _has_unselected_ranks(run: Run) -> bool:
    """Return whether a run has several ranks, and the user selected none of them."""
    return not isinstance(run, RankView) and len(run.ranks) > 1


def _count_rows(run: Run) -> int:
    return sum(run.rows(name) for name in _COUNTED)


def _as_plugin_error(analysis: Analysis, error: TracekitError) -> TracekitError:
    """Return the error of an analysis that failed on all ranks; one of a subclass is kept."""
    if type(error) is not TracekitError:
        return error
    return PluginError(f"analysis {analysis.name!r} failed on every rank: {error.message}", hint=error.hint)


def _compute_parts(analysis: Analysis, executor: Workers, pieces: Sequence[Run]) -> Iterator[_Part]:
    """Yield the partial results of pieces; retry the ranks of a failed piece one by one."""
    # The ranks of a piece fail together: computed apart, only those are lost that fail by themselves.
    single_ranks: list[Run] = []
    outcome: Outcome[Any]
    for outcome in executor.map(partial(_map_ranks, analysis.name), pieces):
        piece = pieces[outcome.index]
        if outcome.error is None or len(piece.ranks) < 2:
            yield piece.ranks, outcome.value, outcome.error
        else:
            single_ranks += [piece.of_ranks(rank) for rank in piece.ranks]
    for outcome in executor.map(partial(_map_ranks, analysis.name), single_ranks) if single_ranks else ():
        yield single_ranks[outcome.index].ranks, outcome.value, outcome.error


def _map_ranks(name: str, run: Run) -> Any:
    """Compute the partial result of some ranks, in a worker, which finds the analysis by its name."""
    analysis: Analysis = registry.load(registry.ANALYSES, name)
    set_up_libraries()
    by_rank = analysis.by_rank
    assert by_rank  # noqa: S101 (the same program everywhere)
    return by_rank.map(run.of_ranks(*run.ranks))  # a separate view, so that its open files are closed with it


def _describe_lost(lost: Sequence[tuple[int, TracekitError]]) -> list[str]:
    """Return a note for each error by which ranks are missing."""
    reasons: dict[str, list[int]] = {}
    for rank, error in lost:
        reasons.setdefault(error.message, []).append(rank)
    return [LOST.format(ranks=format_ranks(failed), why=why) for why, failed in reasons.items()]
