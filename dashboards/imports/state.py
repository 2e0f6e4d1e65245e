"""State of a browser import; immutable, replaced on each progress message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .uploads import Upload


class Phase(StrEnum):
    """Phase of an import."""

    RECEIVING = "receiving"
    WAITING = "waiting"
    IMPORTING = "importing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OVER = {Phase.DONE, Phase.FAILED, Phase.CANCELLED}


@dataclass(frozen=True)
class State:
    """State of an import.

    Attributes:
        id: Id of the import.
        name: Name for display.
        phase: Current phase.
        received: Bytes received.
        read: Bytes decoded of the current file.
        size: Size of the current file; 0 if unknown.
        runs: Names of the created runs.
        warnings: Number of warnings in those runs.
        errors: Message and hint of each error.
    """

    id: str
    name: str
    phase: Phase = Phase.RECEIVING
    received: int = 0
    read: int = 0
    size: int = 0
    runs: tuple[str, ...] = ()
    warnings: int = 0
    errors: tuple[tuple[str, str], ...] = ()


def updated(state: State, message: dict[str, Any], upload: Upload) -> State:
    """Return the state after a message from the worker."""
    if "progress" in message:
        _, done, size = message["progress"]
        return replace(state, read=done, size=size)
    if "run" in message:
        return replace(
            state, runs=(*state.runs, message["run"]), warnings=state.warnings + message["warnings"]
        )
    return replace(state, errors=(*state.errors, (upload.shown(message["error"]), message["hint"])))
