"""Ranks of a run on object storage, read one by one: the same as on a disk."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from samples.simulator.large import Shape
from tests.jobs import imported
from tracekit import analysis
from tracekit.analysis import analyze
from tracekit.runs.rank_view import split_by_rank
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


@pytest.fixture
def both(tmp_path: Path, store: Store, remote: Store) -> tuple[Run, Run]:
    """A job of four ranks on a disk and on object storage, one of them without work on its device."""
    shape = Shape(ranks=4, steps=2, layers=3, slow=2)
    bare = frozenset({1})
    return (
        imported(store, tmp_path / "here", shape, bare=bare),
        imported(remote, tmp_path / "there", shape, bare=bare),
    )


@pytest.mark.slow
def test_analyses_of_ranks_are_those_of_a_disk(both: tuple[Run, Run]) -> None:
    here, there = both
    names = ["ranks", *(one.name for one in analysis.available() if one.by_rank and one.name != "ranks")]
    assert len(names) > 3
    for name in names:
        local, far = analyze(here, name), analyze(there, name)
        assert far.notes == local.notes
        assert far.findings == local.findings
        assert far.tables.keys() == local.tables.keys()
        for table, frame in local.tables.items():
            pd.testing.assert_frame_equal(far.tables[table], frame)


def test_a_view_reads_the_files_of_its_ranks_and_survives_a_journey(both: tuple[Run, Run]) -> None:
    here, there = both
    assert len(split_by_rank(there, min_views=4)) == 4
    for local, far in zip(split_by_rank(here, min_views=4), split_by_rank(there, min_views=4), strict=True):
        arrived: Run = pickle.loads(pickle.dumps(far))  # noqa: S301 (own bytes)
        for name in TABLES:
            assert [file.name for file in arrived.files(name)] == [file.name for file in local.files(name)]
            assert arrived.arrow(name).equals(local.arrow(name))
