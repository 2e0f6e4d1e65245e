"""When idle time of a device gets advice: the rules of `idle_gaps` and their thresholds."""

from __future__ import annotations

from tracekit.analysis import Rule

LEAST_IDLE = 0.05
"""A device busy for more than 95% of the steps (of the capture without any) gets no advice on the rest."""
COMPUTES_NS = 200_000
"""Dispatching one op takes up to some tens of µs; ten times that is other work of the host."""
LEAST_SMALL = 0.05

LAUNCHES = Rule(
    "idle_launch_bound",
    states="gaps of the cause launch_bound in which the host took under 200 µs sum to 1% of the steps or "
    "more, on a device that is idle for 5% of the steps or more",
    why="such a gap is the dispatch of one or a few ops: fewer launches remove it, faster kernels do not",
)
COMPUTES = Rule(
    "idle_host_work",
    states="gaps of the cause launch_bound in which the host took 200 µs or more, most of it outside of "
    "runtime calls, sum to 1% of the steps or more, on a device that is idle for 5% of the steps or more",
    why="no dispatch of an op takes 200 µs: the host did something else, or nothing, and the device waited",
)
CALLS = Rule(
    "idle_slow_call",
    states="gaps of the cause launch_bound in which the host took 200 µs or more, most of it inside of one "
    "runtime call, sum to 1% of the steps or more, on a device that is idle for 5% of the steps or more",
    why="a launch call takes some µs: one of 200 µs loads code, allocates memory or waits for a lock",
)
LOADING = Rule(
    "idle_dataload",
    states="gaps of the cause dataload sum to 1% of the steps or more, on a device that is idle for 5% of "
    "the steps or more",
    why="the device waits for a batch; workers can prepare the next one meanwhile",
)
DEPENDS = Rule(
    "idle_stream_dependency",
    states="gaps of the cause stream_dependency sum to 1% of the steps or more, on a device that is idle "
    "for 5% of the steps or more",
    why="a device starts queued work within a few µs, so it waited for something else",
)
SMALL = Rule(
    "idle_between_kernels",
    states="gaps of the cause kernel_to_kernel sum to 5% of the steps or more",
    why="below that neither fewer nor fused kernels would show; it informs and puts no number on the saving",
)
RULES = (LAUNCHES, COMPUTES, CALLS, LOADING, DEPENDS, SMALL)
