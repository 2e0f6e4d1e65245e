"""What is said of programs that were kept from the CPU, and of those that were not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.runs.conditions import describe_load, find_contention
from tracekit.runs.meta import CpuLoad

QUIET = CpuLoad(
    rank=0,
    cores=4,
    wall_ns=1_000,
    cpu_ns=950,
    step_thread_cpu_ns=950,
    step_thread_wait_ns=5,
    program_ns=950,
    others_ns=40,
    steal_ns=0,
    throttled_ns=0,
)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (QUIET, None),
        # others use cores that the program does not need
        (replace(QUIET, others_ns=2_800), None),
        (
            replace(QUIET, step_thread_wait_ns=950, others_ns=2_000),
            "other programs took 50% of the CPU: step times are unreliable "
            "(the steps waited 50% of their time)",
        ),
        # the thread of the steps waits for workers, which others keep from the cores
        (
            replace(QUIET, program_ns=2_000, others_ns=2_000),
            "other programs took 50% of the CPU: step times are unreliable",
        ),
        (
            replace(QUIET, steal_ns=400),
            "the host of this virtual machine took 10% of the CPU: step times are unreliable",
        ),
        (
            replace(QUIET, throttled_ns=300),
            "the limit of the control group held the program for 30% of the time: step times are unreliable",
        ),
        # what a command that is only timed tells
        (CpuLoad(rank=0, cores=2, wall_ns=100, cpu_ns=90, program_ns=90, others_ns=60), None),
        (
            CpuLoad(rank=0, cores=2, wall_ns=100, cpu_ns=90, program_ns=90, others_ns=105),
            "other programs took 52% of the CPU: step times are unreliable",
        ),
        (CpuLoad(rank=0, cores=2, wall_ns=100, cpu_ns=90), None),
        # who used the cores is not known
        (
            replace(QUIET, step_thread_wait_ns=950, others_ns=None),
            "the steps waited 50% of their time for a core: step times are unreliable",
        ),
    ],
)
def test_contention_is_said_with_what_took_the_cpu(load: CpuLoad, message: str | None) -> None:
    contention = find_contention([QUIET, load])
    assert (contention and contention.message) == message


def test_threads_of_the_program_that_wait_for_each_other_are_no_other_programs() -> None:
    contention = find_contention([replace(QUIET, step_thread_wait_ns=950, program_ns=3_900)])
    assert contention is not None
    assert not contention.is_external
    assert contention.message.endswith("the program has more threads than 4 cores")


def test_a_quiet_machine_is_described() -> None:
    assert describe_load([QUIET]) == (
        "other programs took 1% of the CPU, the steps waited 0.5% of their time for a core"
    )
    assert describe_load([CpuLoad(rank=0, cores=1, wall_ns=1, cpu_ns=1)]).startswith("unknown")
