"""The longest path by chains is the one that going through every node in turn gives."""

from __future__ import annotations

import numpy as np
import pytest
from tracekit.analyses.critical_path.host import FAR
from tracekit.analyses.critical_path.longest_path import LongestPath, Three

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


def in_turn(graph: LongestPath, weights: Three, cost: Ints, waited: Ints) -> list[int]:
    """The time of every node, each from what it depends on; what comes later in the order is as recorded."""
    times = graph.recorded.tolist()
    sources = (graph.sources[0], graph.sources[1], waited)
    for node in np.argsort(graph.place, kind="stable").tolist():
        edges = [times[one[node]] + int(to_one[node]) for one, to_one in zip(sources, weights, strict=True)]
        times[node] = max(edges) + int(cost[node])
    return [int(time) for time in times]


def graph_of(rng: np.random.Generator, *, tidy: bool) -> LongestPath:
    """Lanes of intervals that follow joins of the host, now and then on something else or out of order."""
    intervals, others, lanes = int(rng.integers(1, 40)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
    total = intervals + others
    root, never = total, total + 1
    lane = np.sort(rng.integers(0, lanes, intervals))
    place = np.empty(total, np.int64)
    place[rng.permutation(total) if not tidy else np.argsort(rng.random(total), kind="stable")] = np.arange(
        total
    )
    if tidy:
        place[:intervals] = np.sort(place[:intervals])
    before = np.where(np.append([-1], lane[:-1]) == lane, np.arange(intervals) - 1, never)
    joins = intervals + np.sort(rng.integers(0, others, intervals))
    launch = np.where(rng.random(intervals) < 0.2, never, joins)
    launch = np.where((launch == never) & (before == never), root, launch)
    if not tidy:
        changed = rng.random(intervals) < 0.2
        before = np.where(changed, rng.integers(0, total, intervals), before)
    waited = np.where(rng.random(intervals) < 0.1, rng.integers(0, total, intervals), never)
    rest = [rng.integers(0, total, others), np.full(others, root), np.full(others, never)]
    recorded = np.append(rng.integers(0, 1000, total), [0, -FAR])
    parts = zip((launch, before, waited), rest, strict=True)
    first, second, third = (np.concatenate(pair) for pair in parts)
    return LongestPath(
        intervals=intervals, lane=lane, place=place, recorded=recorded, sources=(first, second, third)
    )


@pytest.mark.parametrize("tidy", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_chains_give_what_going_through_every_node_gives(seed: int, tidy: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = graph_of(rng, tidy=tidy)
    total = len(graph.place)
    for _ in range(3):
        first, second, third = (rng.integers(-5, 50, total) for _ in range(3))
        cost = rng.integers(0, 30, total)
        waited = graph.sources[2].copy()
        waited[graph.intervals :] = np.where(
            rng.random(total - graph.intervals) < 0.5, graph.never, waited[graph.intervals :]
        )
        on_device, others = graph.times((first, second, third), cost, waited)
        expected = in_turn(graph, (first, second, third), cost, waited)
        assert on_device.tolist() == expected[: graph.intervals]
        assert others.tolist() == expected[graph.intervals :]
