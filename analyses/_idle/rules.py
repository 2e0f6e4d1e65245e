"""Rules of `idle_gaps` and their thresholds."""

from __future__ import annotations

from tracekit.analysis import Rule

LEAST_IDLE = 0.05
"""Minimum idle share of the steps (of the capture without any) for findings on a device."""
COMPUTES_NS = 200_000
"""Dispatching one op takes up to some tens of µs; a longer host part is other work."""
LEAST_SMALL = 0.05

LAUNCHES = Rule(
    "idle_launch_bound",
    states="launch_bound gaps with a host part under 200 µs sum to at least 1% of the steps, on a device "
    "that is idle for at least 5% of the steps",
    why="such a gap is the dispatch of one or a few ops: fewer launches remove it, faster kernels do not",
)
COMPUTES = Rule(
    "idle_host_work",
    states="launch_bound gaps with a host part of at least 200 µs, mostly outside runtime calls, sum to at "
    "least 1% of the steps, on a device that is idle for at least 5% of the steps",
    why="dispatching an op does not take 200 µs: the host did other work, or waited",
)
CALLS = Rule(
    "idle_slow_call",
    states="launch_bound gaps with a host part of at least 200 µs, mostly inside one runtime call, sum to at "
    "least 1% of the steps, on a device that is idle for at least 5% of the steps",
    why="a launch call takes some µs: one of 200 µs loads code, allocates memory or waits for a lock",
)
LOADING = Rule(
    "idle_dataload",
    states="dataload gaps sum to at least 1% of the steps, on a device that is idle for at least 5% of the "
    "steps",
    why="the device waits for a batch; workers can prepare the next one concurrently",
)
DEPENDS = Rule(
    "idle_stream_dependency",
    states="stream_dependency gaps sum to at least 1% of the steps, on a device that is idle for at least 5% "
    "of the steps",
    why="a device starts queued work within a few µs, so it waited for something else",
)
SMALL = Rule(
    "idle_between_kernels",
    states="kernel_to_kernel gaps sum to at least 5% of the steps",
    why="below that fewer or fused kernels make no visible difference; savings are not estimated",
)
RULES = (LAUNCHES, COMPUTES, CALLS, LOADING, DEPENDS, SMALL)
