"""How far an import from the browser is: a value that each line of its process replaces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .uploads import Upload


class Phase(StrEnum):
    """How far an import is."""

    RECEIVING = "receiving"
    WAITING = "waiting"
    IMPORTING = "importing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OVER = {Phase.DONE, Phase.FAILED, Phase.CANCELLED}


@dataclass(frozen=True)
class State:
    """What is known of an import.

    Attributes:
        id: Names it.
        name: Name of what it imports, as the person knows it.
        phase: How far it is.
        received: Bytes that have arrived.
        read: Bytes of the present file that are decoded.
        size: Its size; 0 where unknown.
        runs: Names of the runs it made.
        warnings: How many warnings those runs carry.
        errors: What could not be used: message and hint.
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


def told(state: State, what: dict[str, Any], upload: Upload) -> State:
    """The state after a line of the process."""
    if "progress" in what:
        _, done, size = what["progress"]
        return replace(state, read=done, size=size)
    if "run" in what:
        return replace(state, runs=(*state.runs, what["run"]), warnings=state.warnings + what["warnings"])
    return replace(state, errors=(*state.errors, (upload.shown(what["error"]), what["hint"])))
