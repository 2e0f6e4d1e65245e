"""What a cell of a grid holds for a value that `tracekit analyze` prints."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.idle_causes import CAUSES, label
from tracekit.errors import clean


def in_cell(field: str, value: Any) -> Any:
    """Text without control characters and backticks, causes of idle time as labels, others as they are."""
    if not isinstance(value, str):
        return value
    return label(value) if field == "cause" and value in CAUSES else clean(value).replace("`", "")
