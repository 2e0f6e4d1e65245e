"""Runs of two sides, as hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

nanoseconds = st.integers(1_000, 10_000_000)
near = st.integers(95_000, 110_000)
values = st.one_of(nanoseconds, near)
blocks = st.lists(st.tuples(values, values), min_size=1, max_size=7).map(
    lambda pairs: ([a for a, _ in pairs], [b for _, b in pairs])
)
groups = st.tuples(st.lists(values, min_size=1, max_size=7), st.lists(values, min_size=1, max_size=7))
