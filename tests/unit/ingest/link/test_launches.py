from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracekit.ingest.link import launches
from tracekit.ingest.link.launches import Lookup, find_gaps
from tracekit.ingest.spool import window_reader

keys = st.lists(st.integers(-5, 40), max_size=30)


@given(
    st.lists(keys, max_size=6),
    keys,
    st.sampled_from([1, 3, 1 << 20]),
    st.sampled_from([3, window_reader.WINDOW_ROWS]),
)
@example([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]], [*range(13)], 1, 3)  # several windows
def test_the_first_of_equal_keys_wins_in_memory_and_in_files(
    added: list[list[int]], wanted: list[int], held: int, window: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_reader, "WINDOW_ROWS", window)
        patch.setattr(launches, "HELD", held)
        found = Lookup(Path(folder), "found", columns=2)
        first: dict[int, int] = {}
        for number, some in enumerate(added):
            places = np.arange(len(some)) + 100 * number
            found.add(np.array(some, np.int64), places, -places)
            for key, place in zip(some, places.tolist(), strict=True):
                first.setdefault(key, place)
        place, negative = found.find(np.array(wanted, np.int64))
    assert place.tolist() == [first.get(key, -1) for key in wanted]
    assert negative.tolist() == [-first[key] if key in first else -1 for key in wanted]


def test_gaps_are_those_of_each_device_across_windows() -> None:
    covered: dict[int, int] = {}
    # The rows of a window are in no order; the empty interval at 8 splits a gap.
    device, start, end = np.array([1, 0, 1, 0, 1]), np.array([9, 0, 8, 1, 0]), np.array([10, 4, 8, 2, 3])
    first = find_gaps(device, start, end, covered)
    assert [part.tolist() for part in first] == [[3, 8], [8, 9], [1, 1]]
    assert covered == {0: 4, 1: 10}
    second = find_gaps(np.array([1, 2, 0]), np.array([9, 20, 6]), np.array([12, 21, 7]), covered)
    assert [part.tolist() for part in second] == [[4], [6], [0]]
    assert covered == {0: 7, 1: 12, 2: 21}
