"""What the tests of workers have them do."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from tracekit.errors import UnusableInputError
from tracekit.executors import keep, scratch

_PATIENCE_S = 60


def double(number: int) -> int:
    return 2 * number


def doubled_but_three(number: int) -> int:
    if number == 3:
        raise UnusableInputError("3 is not to be doubled", hint="take another one")
    return 2 * number


def doubled_but_not_text(number: object) -> object:
    return 2**number if isinstance(number, int) else {}[number]  # type: ignore[index]


def fatal_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


RELEASED = threading.Event()


class Stuck:
    """What cannot be read before somebody says so; large, so that a client reads it beside other things."""

    def __reduce__(self) -> tuple[object, ...]:
        return _read, (bytes(1 << 25),)


def _read(_large: bytes) -> int:
    RELEASED.wait(_PATIENCE_S)
    return 3


def stuck_three(number: int) -> object:
    if number == 3:
        return Stuck()
    time.sleep(0.5)  # Dask fetches what is ready at the same moment in one request
    return number


def fatal_once(place: tuple[int, str]) -> int:
    number, folder = place
    try:
        (Path(folder) / "was here").mkdir()
    except FileExistsError:
        return 2 * number
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def full_once(place: tuple[int, str]) -> int:
    number, folder = place
    try:
        (Path(folder) / "was full").mkdir()
    except FileExistsError:
        return 2 * number
    raise OSError(28, "No space left on device")


def pid(_item: object) -> int:
    return os.getpid()


def leave(name: str) -> str:
    path = scratch() / name
    path.write_text("here")
    return str(path)


def clear(name: str) -> None:
    (scratch() / name).unlink()


def wait_for(path: str) -> str:
    """Wait until somebody reads what is written to a pipe."""
    with Path(path).open("w") as pipe:
        pipe.write(str(os.getpid()))
    return path


def kept(name: str) -> str:
    """Make a folder that is kept as long as its result."""
    folder = scratch() / f"kept-{name}" / "files"
    folder.mkdir(parents=True)
    keep(folder)
    return str(folder)
