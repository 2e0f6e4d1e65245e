from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.rows import sorted_positions


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3))))
def test_the_order_is_that_of_the_keys(rows: list[tuple[int, int, int]]) -> None:
    keys = np.array(rows, np.int64).reshape(-1, 3)
    order = sorted_positions(keys[:, 0], lambda: keys[:, 1], lambda: keys[:, 2])
    assert [rows[position] for position in order] == sorted(rows)
