"""Filter result tables by the selected rank and device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.analysis import Analysis, Result, TableSpec

    from ..view import View


def rows(result: Result, name: str, view: View) -> pd.DataFrame | None:
    """Return a table's rows for the view's rank and device.

    Args:
        result: Result of an analysis.
        name: Name of the table.
        view: The current view.

    Returns:
        The rows; None if the table is missing or no row matches.
    """
    frame = result.tables.get(name)
    if frame is None:
        return None
    for column, chosen in ((C.RANK, view.rank), (C.DEVICE, view.device)):
        if chosen is not None and column in frame:
            frame = frame[frame[column] == chosen]
    return frame if len(frame) else None


def spec(analysis: Analysis, name: str) -> TableSpec:
    """Return the specification of a table.

    Raises:
        KeyError: There is no such table.
    """
    return {one.name: one for one in analysis.tables}[name]


def place(rank: int, device: int, *, ranks: bool, devices: bool = True) -> str:
    """Format a device, with its rank if several are shown.

    Example:
        >>> place(3, 0, ranks=True), place(0, 1, ranks=False)
        ('rank 3, device 0', 'device 1')
    """
    parts = [f"rank {rank}"] if ranks else []
    parts += [f"device {device}"] if devices else []
    return ", ".join(parts)


def places(frame: pd.DataFrame) -> list[str]:
    """Format the device of each row.

    Args:
        frame: A table with rank and device columns.
    """
    several = frame[C.RANK].nunique() > 1
    return [
        place(rank, device, ranks=several)
        for rank, device in zip(frame[C.RANK].tolist(), frame[C.DEVICE].tolist(), strict=True)
    ]
