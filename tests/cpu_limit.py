"""Limit of the CPU time of a test of the default tier, so that the tier stays quick.

Only the test itself counts, with the child processes that it waits for: neither the set-up of its fixtures
nor the first import of libraries, which one test pays for all. Tests in the browser are walks of many steps,
and the server computes in their process: they have no limit.

A busy machine takes more CPU time for the same work, since its cores share their units and caches with
others. What exceeds the limit is therefore judged by what a fixed loop takes at that moment.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests import tiers

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 6.0
"""Twice what a test may cost on a quiet machine."""
LOOPS, LOOP_SECONDS = 1_000_000, 0.06
"""Iterations of the reference loop, and the CPU time of twice as many on a quiet machine."""
OF_PROGRAMS = 4
"""So many times the limit in `tests/integration`, where each of several real programs imports torch.

A busy machine slows that down more than the loop, which needs no memory.
"""
IMPORT_SECONDS = 0.015
"""For each module that a test imports first; in a new environment its bytecode is compiled as well."""


def add_options(parser: pytest.Parser) -> None:
    """Declare `--cpu-limit`."""
    text = "CPU seconds that a test of the default tier may cost (0: any number)"
    parser.addoption("--cpu-limit", metavar="SECONDS", type=float, default=SECONDS, help=text)


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    usages = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def slowness() -> float:
    """CPU time of the reference loop now over `LOOP_SECONDS`, at least 1."""
    before, total = time.process_time(), 0
    for number in range(LOOPS):
        total += number
    return max(1.0, (time.process_time() - before) / LOOP_SECONDS)


def excess(seconds: float, *, imported: int, limit: float) -> str:
    """Say by what a test exceeds the limit; empty if it does not.

    Args:
        seconds: CPU seconds of the test.
        imported: Number of modules that it imported first.
        limit: CPU seconds that it may cost; 0 for any number.
    """
    if not limit or seconds <= limit + IMPORT_SECONDS * imported:
        return ""
    return (
        f"this test of the default tier cost {seconds:.1f} CPU seconds, child processes included; "
        f"the limit is {limit:g}, and half of it on a quiet machine: make it cheaper (share what it only "
        "reads by a fixture of its module or session, use a smaller input), or mark it `slow`, or its "
        "further variants with `slow_except`"
    )


def check(item: pytest.Item, seconds: float, *, imported: int) -> None:
    """Fail a test of the default tier that costs more than the limit.

    Args:
        item: The test.
        seconds: CPU seconds that it cost.
        imported: Number of modules that it imported first.
    """
    exempt = any(item.get_closest_marker(name) for name in ("slow", "browser"))
    if tiers.tier_of(item.config) == tiers.DEFAULT and not exempt:
        factor = OF_PROGRAMS if item.path.is_relative_to(tiers.TESTS / "integration") else 1
        limit = factor * item.config.option.cpu_limit
        if excess(seconds, imported=imported, limit=limit):
            message = excess(seconds / slowness(), imported=imported, limit=limit)
            if message:
                pytest.fail(message, pytrace=False)


@pytest.hookimpl(wrapper=True, trylast=True)  # around the test alone
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Measure a test and check its limit."""
    before, modules = cpu_seconds(), len(sys.modules)
    result = yield
    check(item, cpu_seconds() - before, imported=max(0, len(sys.modules) - modules))
    return result
