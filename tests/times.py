"""pytest plug-in that prints where the time of a test run goes: by file, by test and by fixture.

    pytest -n 2 -p tests.times

A fixture's time is that of its own set-up, without the fixtures that it requests.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 30
KEY = "fixture_seconds"

_items: list[pytest.Item] = []
"""The test that is being set up: fixtures of a wider scope do not name it."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _items[:] = [item]
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        name = f"{fixturedef.baseid}::{fixturedef.argname}"
        _items[0].user_properties.append((KEY, [name, time.perf_counter() - began]))


class Times:
    """Seconds by file, test and fixture, added up from the reports of all workers."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()
        self.fixtures: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        self.tests[report.nodeid] += report.duration
        self.files[report.nodeid.partition("::")[0]] += report.duration
        if report.when == "teardown":
            for key, value in report.user_properties:
                if key == KEY:
                    name, seconds = value
                    self.fixtures[name] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the dearest with their share of the whole."""
        whole = sum(self.tests.values()) or 1.0
        for title, table in (("files", self.files), ("tests", self.tests), ("fixtures", self.fixtures)):
            terminalreporter.section(f"{MOST} slowest {title} of {whole:.0f} s")
            for name, seconds in table.most_common(MOST):
                terminalreporter.line(f"{seconds:8.2f} s {seconds / whole:6.1%}  {name}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times())
