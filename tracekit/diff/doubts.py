"""What a reader of a comparison should know: of the runs of each side, and of what was compared of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.diff import pieces, repeats
from tracekit.run import busy
from tracekit.schema import C, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff.pieces import Pieces
    from tracekit.diff.spans import Span
    from tracekit.run import Run

UNMARKED = "steps are not marked on both sides, so whole captures are compared: call `profiler.step()`"


@dataclass(frozen=True)
class Explained:
    """One side: its runs, the one whose trace explains it, and what is compared of that.

    Attributes:
        name: `base` or `head`.
        runs: All runs of the side.
        run: The one whose trace explains it.
        span: Its compared steps.
        work: What ran in them.
    """

    name: str
    runs: Sequence[Run]
    run: Run
    span: Span
    work: Pieces


def warnings(sides: tuple[Explained, Explained], *, by: str) -> list[str]:
    """All of them, those of the base first.

    Args:
        sides: The base and the head.
        by: What the lines of causes sum.
    """
    said = [text for side in sides for text in (*_of_runs(side), *_of_work(side, by=by))]
    if not sides[0].span.marked:
        said.append(UNMARKED)
    apart = [has_device(side.run) for side in sides]
    if apart[0] != apart[1]:
        one = sides[apart[1]].name
        said.append(f"only the {one} has work on a device: the ops of both hosts are compared instead")
    return said


def has_device(run: Run) -> bool:
    """Whether anything ran on a device."""
    return not busy(run, [C.RANK]).empty


def _of_runs(side: Explained) -> list[str]:
    known = [run.meta.git for run in side.runs if run.meta.git]
    dirty = sum(bool(git.dirty) for git in known)
    commits = len({git.sha for git in known})
    several = len(side.runs)
    said = []
    if dirty:
        which = "the" if several == 1 else f"{dirty} of the {several} runs of the"
        were = "were" if dirty > 1 else "was"
        said.append(f"{which} {side.name} {were} recorded with uncommitted changes, which no commit holds")
    if commits > 1:
        said.append(f"the {several} runs of the {side.name} are of {commits} commits")
    return said + repeats.unlike(side.name, side.runs, side.run, on_device=side.work.on_device)


def _of_work(side: Explained, *, by: str) -> list[str]:
    said, name, table = [], side.name, side.work.table
    if side.work.unassigned_ns:
        said.append(
            f"the {name} has {side.work.unassigned_ns:,} ns of device work in no step: it is left out"
        )
    if extra := side.span.unused_ranks:
        ranks = "1 rank" if extra == 1 else f"{extra} ranks"
        said.append(f"the {name} has {ranks} without a match on the other side, left out")
    if by == "module" and not table.empty and not (table[pieces.MODULE_KEY] != 0).any():
        said.append(f"no modules were recorded in the {name}: record with stacks and modules")
    if not side.work.on_device:
        return said
    if (table[C.KIND] == DeviceKind.GRAPH).any():
        said.append(f"the {name} has CUDA graphs whose kernels were not recorded: each counts as one piece")
    return said + _of_devices(side)


def _of_devices(side: Explained) -> list[str]:
    frame = busy(side.run, [C.RANK, C.DEVICE])
    most = int(frame.groupby(C.RANK)[C.DEVICE].nunique().max())
    if most < 2:
        return []
    return [
        f"a rank of the {side.name} used {most} devices: the work ledger sums all, the wall ledger "
        "shows the busiest"
    ]
