"""Rules of launch configurations and their thresholds."""

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
        states="grids of one block with a median of at least 20 µs per launch, together at least 1% of "
        "the steps' time",
        why=(
            "one block uses one SM of the device; below 20 µs a kernel costs little more than its launch, "
            "and a small result needs no more blocks; collectives use few blocks by design and are excluded"
        ),
    ),
    Rule(
        "few_blocks",
        states="at least 2 blocks, for at most half of the SMs; median of at least 20 µs, at least 3% of "
        "the steps",
        why=(
            "a block stays on its SM, so the other SMs are idle; the thresholds exclude small gains, "
            "because the gain is an upper bound"
        ),
    ),
    Rule(
        "partial_wave",
        states=(
            "more than one wave, the last of which leaves at least a quarter of all block slots empty; the "
            "upper bound of the saving is at least 3% of the steps' time"
        ),
        why=(
            "with many waves the last one matters little; blocks rarely take equally long, so the bound is "
            "rarely reached"
        ),
    ),
    Rule(
        "low_occupancy",
        states=(
            "blocks for at least one wave, and at most a quarter of an SM's threads resident; at least "
            "3% of the steps' time; matrix products, convolutions, attention and Triton excluded"
        ),
        why=(
            "few resident threads do not hide memory latency; libraries and autotuners trade occupancy for "
            "registers and shared memory by design"
        ),
    ),
    Rule(
        "threads_per_element",
        states=(
            "element-wise kernels with 8 times as many threads as the broadcast inputs have elements, and at "
            "least one block per SM; at least 1% of the steps' time"
        ),
        why="element-wise kernels of PyTorch process at least 4 elements per thread; an extra warp is "
        "rounding",
    ),
    Rule(
        "config_varies",
        states=(
            "one op with the same input shapes launches one kernel family with 2 or 3 grids or blocks, one "
            "launch per call and each configuration more than once; at least 1% of the steps' time"
        ),
        why=(
            "information only: strides, alignment and library heuristics are not recorded and may explain "
            "it; a data-dependent grid takes many values, each once"
        ),
    ),
)
