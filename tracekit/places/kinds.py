"""What a path names."""

from __future__ import annotations

import stat
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError
from tracekit.spelling import printable

from .remote import RemoteError

if TYPE_CHECKING:
    from .remote import Place

STDIN = Path("-")


class Kind(Enum):
    """What a path names."""

    NOTHING = auto()
    FOLDER = auto()
    FILE = auto()
    STREAM = auto()
    """Standard input, a pipe or a device: it can be read once, from front to back."""


def kind(path: Place) -> Kind:
    """What a path names; nothing, too, when the system refuses to look.

    Raises:
        UnusableInputError: Object storage refuses to look, and would refuse again.
    """
    if path == STDIN:
        return Kind.STREAM
    try:
        mode = path.stat().st_mode
    except RemoteError as error:
        raise UnusableInputError(
            f"{printable(str(path))} cannot be read: {error}",
            hint="check the address, the credentials and the network",
        ) from error
    except (OSError, ValueError):
        return Kind.NOTHING
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    return Kind.FILE if stat.S_ISREG(mode) else Kind.STREAM
