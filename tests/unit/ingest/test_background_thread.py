from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tracekit.ingest.pool import BackgroundThread

if TYPE_CHECKING:
    from tracekit.ingest.pool import Work


def _fail() -> None:
    raise OSError("full")


def test_work_is_done_in_order_in_another_thread() -> None:
    done: list[tuple[int, int]] = []
    with BackgroundThread() as thread:
        for number in range(5):
            thread.do(lambda number=number: done.append((number, threading.get_ident())))
    assert [number for number, _ in done] == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in {thread for _, thread in done}


def _fail() -> None:
    raise OSError("full")


def hand_over(*pieces: Work, then: Exception | None = None) -> None:
    """Hand pieces over, and fail with an error of one's own at the end."""
    with BackgroundThread() as thread:
        for piece in pieces:
            thread.do(piece)
        if then is not None:
            raise then


def test_an_error_ends_the_work_and_is_raised() -> None:
    done: list[str] = []
    with pytest.raises(OSError, match="full"):
        hand_over(_fail, *[lambda: done.append("later")] * 5)
    assert done == []


def test_an_error_of_the_last_piece_is_raised_at_the_end() -> None:
    with pytest.raises(OSError, match="full"):
        hand_over(_fail)


def test_an_error_of_the_maker_is_its_own() -> None:
    with pytest.raises(ValueError, match="maker"):
        hand_over(_fail, then=ValueError("maker"))
