"""Lines of the work ledger: groups summed by op, by module or by kernel, and counts that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.diff.ledgers import Amount, Cause, Changed, Terms
from tracekit.diff.optree import PATH_ARROW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff.ledgers import Group

VIEWS = ("op", "module", "kernel")
NO_OP = "(no op recorded)"
NO_MODULE = "(no module recorded)"
NAMED_ROWS = 5
_NAMED = 3


def path_of(group: Group) -> str:
    """The ops that lead to a group's work, in one text."""
    return PATH_ARROW.join(group.path) or NO_OP


def what(group: Group) -> str:
    """What ran: its name, and both names where they differ."""
    if group.name_a and group.name_b and group.name_a != group.name_b:
        return f"{group.name_a} → {group.name_b}"
    return group.name_b or group.name_a


def causes(groups: Sequence[Group], *, by: str) -> tuple[Cause, ...]:
    """Sum groups into lines, the largest difference first.

    Args:
        groups: The groups that differ.
        by: One of `VIEWS`.
    """
    lines: dict[str, list[Group]] = {}
    for group in groups:
        lines.setdefault(_label(group, by), []).append(group)
    summed = [_line(label, own, by) for label, own in lines.items()]
    return tuple(sorted(summed, key=_place))


def _place(line: Cause) -> tuple[int, int, str]:
    terms = line.terms
    weight = max(terms.added, terms.removed, abs(terms.count), abs(terms.rate))
    return -abs(terms.delta), -weight, line.label


def _label(group: Group, by: str) -> str:
    if by == "module":
        return group.module or NO_MODULE
    return what(group) if by == "kernel" else path_of(group)


def _line(label: str, groups: Sequence[Group], by: str) -> Cause:
    seen = dict.fromkeys(path_of(group) if by == "kernel" else what(group) for group in groups)
    names = [name for name in seen if name != label.rpartition(PATH_ARROW)[2]]
    shown = "; ".join(names[:_NAMED])
    return Cause(
        label=label,
        detail=shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""),
        a=_sum([group.a for group in groups]),
        b=_sum([group.b for group in groups]),
        terms=sum((group.terms for group in groups), Terms()),
        rungs=tuple(dict.fromkeys(group.rung for group in groups)),
        modules=tuple(dict.fromkeys(group.module for group in groups if group.module))[:_NAMED],
        evidence={
            side: rows
            for side in ("a", "b")
            if (rows := [row for group in groups for row in group.evidence.get(side, [])][:NAMED_ROWS])
        },
    )


def _sum(amounts: Sequence[Amount]) -> Amount:
    return Amount(sum(one.count for one in amounts), sum(one.total_ns for one in amounts))


def counts(groups: Sequence[Group]) -> tuple[Changed, ...]:
    """What runs another number of times, the largest change first: exact, so without a test."""
    sums: dict[tuple[str, str], list[int]] = {}
    for group in groups:
        both = sums.setdefault((path_of(group), what(group)), [0, 0])
        both[0] += group.a.count
        both[1] += group.b.count
    changed = [Changed(path, name, a, b) for (path, name), (a, b) in sums.items() if a != b]
    return tuple(sorted(changed, key=lambda one: (-abs(one.b - one.a), one.label, one.name)))
