"""Offsets of the clocks of ranks: medians of the differences of ends, over ranks that share a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tracekit.analyses.shared.clocks import ClockOffset, clock_offsets, relate_ranks
from tracekit.analyses.shared.collectives import MatchedCollectives

from tests.builders import kernel, make_run
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders import Row


def matched(ranks: list[int], ends: list[list[int]], *, devices: int = 1) -> MatchedCollectives:
    """Collectives of 1 µs by their ends, one list per collective."""
    places = [(rank, device) for rank in ranks for device in range(devices)]
    end = np.array(ends, np.int64)
    dur = np.full(end.shape, 1_000)
    return MatchedCollectives(
        places, np.zeros_like(end), np.zeros(len(end)), end - dur, dur, dur, ("all_reduce", "f")
    )


def test_an_offset_is_the_median_difference_of_ends_and_its_spread_the_median_distance() -> None:
    ends = [[1_000, 6_000], [2_000, 7_010], [3_000, 8_020], [4_000, 99_999], [5_000, 10_000]]
    assert relate_ranks([matched([2, 5], ends)]) == (
        ClockOffset(2, 0, 0, 0),
        ClockOffset(5, 5_010, 10, 5),
    )


def test_ranks_without_a_group_in_common_are_related_by_ranks_between_them() -> None:
    pairs = [([0, 1], 100), ([0, 2], -70), ([2, 3], 5), ([1, 3], 9), ([8, 9], 1)]
    groups = [matched(ranks, [[50, 50 + offset]]) for ranks, offset in pairs]
    groups.append(matched([2, 3], [[90, 95], [95, 100]]))
    found = {clock.rank: (clock.offset_ns, clock.collectives) for clock in relate_ranks(groups)}
    # rank 3 is as near by rank 1, but has more collectives in common with rank 2
    assert found == {0: (0, 0), 1: (100, 1), 2: (-70, 1), 3: (-65, 3)}


def test_the_last_device_of_a_rank_ends_its_collective() -> None:
    clocks = relate_ranks([matched([0, 1], [[10, 30, 130, 110]], devices=2)])
    assert clocks[1].offset_ns == 100


def test_ranks_whose_collectives_do_not_end_together_are_not_related() -> None:
    ends = [[0, 0], [1_000_000, 3_000_000], [4_000_000, 9_000_000]]
    assert relate_ranks([matched([0, 1], ends)]) == ()
    assert relate_ranks([]) == ()


def collective(rank: int, start: int, name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL") -> Row:
    return kernel(start, start + 100, **{C.NAME: name, C.RANK: rank, C.DEVICE: rank, C.STREAM: 9})


def test_collectives_that_synchronize_are_matched_in_the_tables_of_a_run(tmp_path: Path) -> None:
    rows = [collective(rank, at + 7 * rank) for rank in range(2) for at in (1_000, 2_000, 3_000)]
    assert clock_offsets(make_run(tmp_path / "a", device_intervals=rows))[1] == ClockOffset(1, 7, 0, 3)
    name = "ncclDevKernel_Broadcast_RING_LL"
    rows = [collective(rank, at, name) for rank in range(2) for at in (1_000, 2_000, 3_000)]
    assert clock_offsets(make_run(tmp_path / "b", device_intervals=rows)) == ()
    alone = [collective(0, 1_000), collective(0, 2_000)]
    assert clock_offsets(make_run(tmp_path / "c", device_intervals=alone)) == ()
