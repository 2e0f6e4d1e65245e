"""The rules of launch configurations, and their thresholds."""

from __future__ import annotations

from tracekit.analysis import Rule

LONG_NS = 20_000
FEW_SHARE = 0.5
TAIL_SHARE = 0.25
LOW_OCCUPANCY = 0.25
MANY_THREADS = 8
FEW_CONFIGS = 3

RULES = (
    Rule(
        "serial_kernel",
        states="grids of one block, 20 µs a launch at the median, at least 1% of the steps' time together",
        why=(
            "one block uses one SM of the device; below 20 µs a kernel costs little more than its launch, "
            "and a small result needs no more; collectives use few blocks on purpose and are left out"
        ),
    ),
    Rule(
        "few_blocks",
        states="2 or more blocks, for at most half of the SMs; 20 µs at the median, 3% of the steps",
        why=(
            "a block stays on its SM, so the other SMs get nothing whatever fits on one; half and 3% leave "
            "alone what gains little, for the gain is an upper bound"
        ),
    ),
    Rule(
        "partial_wave",
        states=(
            "more than one wave, of which the last leaves at least a quarter of all block slots empty; the "
            "upper bound of the saving is at least 3% of the steps' time"
        ),
        why=(
            "with many waves the last one weighs little; blocks rarely take equally long, so that the bound "
            "is seldom reached"
        ),
    ),
    Rule(
        "low_occupancy",
        states=(
            "blocks for one wave or more, and no more than a quarter of an SM's threads resident at once; at "
            "least 3% of the steps' time; matrix products, convolutions, attention and Triton left out"
        ),
        why=(
            "few resident threads hide memory latency badly; libraries and autotuners trade occupancy for "
            "registers and shared memory on purpose"
        ),
    ),
    Rule(
        "threads_per_element",
        states=(
            "element-wise kernels with 8 times as many threads as the broadcast inputs have elements, and at "
            "least one block per SM; at least 1% of the steps' time"
        ),
        why="element-wise kernels of PyTorch give a thread 4 elements or more; a warp too many is rounding",
    ),
    Rule(
        "config_varies",
        states=(
            "one op with the same input shapes launches one kernel family with 2 or 3 grids or blocks, one "
            "launch per call and each of them more than once; at least 1% of the steps' time"
        ),
        why=(
            "information only: strides, alignment and library heuristics are not recorded and may explain "
            "it; a grid that follows from the data takes many values, each of them once"
        ),
    ),
)
