"""Report of a suite: finished tables with definitions and sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.suite.model import Kind
from tracekit.suite.tables import compiled, curves, domains, epochs, memory, speedups, workloads
from tracekit.sweeping.table import rows

if TYPE_CHECKING:
    from tracekit.suite.model import Table
    from tracekit.sweeping.folder import Folder

_TABLES = (
    domains.table,
    workloads.table,
    compiled.table,
    memory.table,
    speedups.table,
    curves.table,
    epochs.table,
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report of a suite.

    Attributes:
        id: Id of the suite.
        size: `test` or `gpu`.
        created_at: Time of creation, UTC.
        machine: Properties of the machine.
        tables: Tables by name, in the order of the page.
        outcomes: Number of cells by outcome.
    """

    id: str
    size: str
    created_at: str
    machine: dict[str, Any]
    tables: dict[str, Table]
    outcomes: dict[str, int]


def report(folder: Folder) -> Report:
    """Create the report of a suite, finished or not.

    Args:
        folder: Folder of the suite's sweep.

    Example:
        >>> report(find(store, "latest", kind="suite")).tables["domains"].rows  # doctest: +SKIP
    """
    head = folder.head
    found = rows(head.plan, folder.records())
    kind = Kind.of(found)
    outcomes = [row.outcome for row in found]
    return Report(
        id=folder.id,
        size=head.plan.size,
        created_at=head.created_at,
        machine=head.machine,
        tables={one.name: one for one in (make(kind) for make in _TABLES)},
        outcomes={name: outcomes.count(name) for name in dict.fromkeys(outcomes)},
    )
