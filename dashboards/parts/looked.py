"""The rows of a result that are of the rank and device looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.analysis import Analysis, Result, TableSpec

    from ..view import View


def rows(result: Result, name: str, view: View) -> pd.DataFrame | None:
    """A table's rows of the rank and device of a view, as far as it has those columns.

    Args:
        result: Of an analysis.
        name: The table.
        view: What is looked at.

    Returns:
        The rows; None where there is no such table or nothing is left of it.
    """
    frame = result.tables.get(name)
    if frame is None:
        return None
    for column, chosen in ((C.RANK, view.rank), (C.DEVICE, view.device)):
        if chosen is not None and column in frame:
            frame = frame[frame[column] == chosen]
    return frame if len(frame) else None


def spec(analysis: Analysis, name: str) -> TableSpec:
    """Specification of a table of an analysis.

    Raises:
        KeyError: It has none of that name.
    """
    return {one.name: one for one in analysis.tables}[name]


def place(rank: int, device: int, *, ranks: bool, devices: bool = True) -> str:
    """A device in words, the rank where several are shown.

    Example:
        >>> place(3, 0, ranks=True), place(0, 1, ranks=False)
        ('rank 3, device 0', 'device 1')
    """
    words = [f"rank {rank}"] if ranks else []
    words += [f"device {device}"] if devices else []
    return ", ".join(words)


def places(frame: pd.DataFrame) -> list[str]:
    """The device of each row in words.

    Args:
        frame: A table with a rank and a device in each row.
    """
    several = frame[C.RANK].nunique() > 1
    return [
        place(rank, device, ranks=several)
        for rank, device in zip(frame[C.RANK].tolist(), frame[C.DEVICE].tolist(), strict=True)
    ]
