"""Warnings about the runs of a comparison: what they lack, and what was left out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import brief, shared_family
from tracekit.diff import compared_steps
from tracekit.diff.compared_steps import StepRange, has_device
from tracekit.diff.naming import op_name
from tracekit.diff.work_items import MODULE_KEY, WorkItems
from tracekit.runs.environment import PROGRAM
from tracekit.runs.run import Run, busy
from tracekit.runs.text import BECAME, leaves
from tracekit.schema import C, DeviceKind, HostKind

UNMARKED = "steps are not marked on both sides, so whole captures are compared: call `profiler.step()`"


@dataclass(frozen=True)
class ComparedSide:
    """Side of a comparison: all runs, the one whose trace explains it, its compared steps and their work."""

    name: str
    runs: Sequence[Run]
    run: Run
    steps: StepRange
    items: WorkItems


def warnings(sides: tuple[ComparedSide, ComparedSide], *, by: str) -> list[str]:
    """Return what limits a comparison by op, module or kernel: of the base, of the head, then of both."""
    texts = [text for side in sides for text in (*_warn_of_runs(side), *_warn_of_items(side, by=by))]
    if not sides[0].steps.has_step_marks:
        texts.append(UNMARKED)
    on_device = [has_device(side.run) for side in sides]
    if on_device[0] != on_device[1]:
        name = sides[on_device[1]].name
        texts.append(f"only the {name} has work on a device: the ops of both hosts are compared instead")
    return texts + _warn_of_settings(*(side.run for side in sides))


def _warn_of_settings(base: Run, head: Run) -> list[str]:
    """Return a warning about settings of the program that differ, if they were recorded of both sides."""
    settings = [run.meta.environment.get(PROGRAM) for run in (base, head)]
    if not all(settings):
        return []
    a, b = (dict(leaves("", values)) for values in settings)
    differing = [
        f"{name} {_say(a.get(name))}{BECAME}{_say(b.get(name))}"
        for name in dict.fromkeys((*a, *b))
        if a.get(name) != b.get(name)
    ]
    more = f", and {len(differing) - MAX_SETTINGS} more" * (len(differing) > MAX_SETTINGS)
    shown = ", ".join(differing[:MAX_SETTINGS])
    return [f"settings of the program differ from base to head: {shown}{more}"] if differing else []


def _say(value: object) -> str:
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), str(value))


MAX_SETTINGS = 8
"""Differing settings that are listed."""


def _warn_of_runs(side: ComparedSide) -> list[str]:
    commits = [run.meta.git for run in side.runs if run.meta.git]
    dirty = sum(bool(git.dirty) for git in commits)
    distinct, count = len({git.sha for git in commits}), len(side.runs)
    texts = []
    if dirty:
        which = "the" if count == 1 else f"{dirty} of the {count} runs of the"
        were = "were" if dirty > 1 else "was"
        texts.append(f"{which} {side.name} {were} recorded with uncommitted changes, which no commit holds")
    if distinct > 1:
        texts.append(f"the {count} runs of the {side.name} are of {distinct} commits")
    return texts + _warn_of_counts(side)


def _warn_of_counts(side: ComparedSide) -> list[str]:
    """Return a warning about runs of a side whose counts differ from those of the explained run."""
    counted = [
        _count_differences(side.run, run, on_device=side.items.on_device)
        for run in side.runs
        if run.path != side.run.path
    ]
    others = [names for names in counted if names]
    if not others:
        return []
    names = sorted({name for names in others for name in names})
    more = f" and {len(names) - 1} more names" if len(names) > 1 else ""
    runs = "1 other run of the {} has" if len(others) == 1 else f"{len(others)} other runs of the {{}} have"
    return [
        f"{runs.format(side.name)} another count of {brief(names[0])}{more} than {side.run.id}: a count that "
        "changed may not hold in every run"
    ]


def _count_differences(explained: Run, other: Run, *, on_device: bool) -> list[str]:
    """Return the names that two runs of a side have another number of times in as many steps."""
    both = zip((explained, other), compared_steps.select_steps(explained, other), strict=True)
    a, b = (_counts(run, steps, on_device=on_device) for run, steps in both)
    differences = a.sub(b, fill_value=0)
    return [str(name) for name in differences.index[differences != 0]]


def _counts(run: Run, steps: StepRange, *, on_device: bool) -> pd.Series:
    columns = [C.RANK, C.STEP, C.START_NS, C.NAME]
    if on_device:
        frame = busy(run, columns)
    else:
        frame = run.table("host_intervals", columns=columns, where=pc.field(C.KIND) == str(HostKind.OP))
    counts = frame.loc[compared_steps.inside(frame, steps), C.NAME].astype(str).value_counts()
    return counts.groupby(counts.index.map(shared_family if on_device else op_name)).sum()


def _warn_of_items(side: ComparedSide, *, by: str) -> list[str]:
    texts, name, table = [], side.name, side.items.table
    if side.items.unassigned_ns:
        texts.append(
            f"the {name} has {side.items.unassigned_ns:,} ns of device work in no step: it is left out"
        )
    if extra := side.steps.unused_ranks:
        ranks = "1 rank" if extra == 1 else f"{extra} ranks"
        texts.append(f"the {name} has {ranks} without a match on the other side, left out")
    if by == "module" and not table.empty and not (table[MODULE_KEY] != 0).any():
        texts.append(f"no modules were recorded in the {name}: record with stacks and modules")
    if not side.items.on_device:
        return texts
    if (table[C.KIND] == DeviceKind.GRAPH).any():
        texts.append(f"the {name} has CUDA graphs whose kernels were not recorded: each counts as one piece")
    devices = int(busy(side.run, [C.RANK, C.DEVICE]).groupby(C.RANK)[C.DEVICE].nunique().max())
    if devices > 1:
        texts.append(
            f"a rank of the {name} used {devices} devices: the work ledger sums all, the wall ledger "
            "shows the busiest"
        )
    return texts
