"""The rules of the default tier: which variants it runs, and what a test of it may cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import cpu_limit, tiers


class Item:
    """A collected test, as far as tiers look at it."""

    def __init__(self, nodeid: str, *kept: object) -> None:
        self.nodeid, self.marks = nodeid, [pytest.mark.slow_except(*kept).mark] if kept else []

    def get_closest_marker(self, name: str) -> Any:
        return next((one for one in self.marks if one.name == name), None)

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.marks.append(marker.mark)


@pytest.mark.parametrize(
    ("kept", "default"), [((2,), ["a", "b"]), (("c", "a"), ["a", "c"]), ((), ["a", "b", "c"])]
)
def test_the_default_tier_keeps_the_first_or_named_variants(
    kept: tuple[object, ...], default: list[str]
) -> None:
    items: Any = [Item(f"tests/test_x.py::test_y[{name}]", *kept) for name in "abc"]
    tiers.mark_variants(items)
    assert [one.nodeid[-2] for one in items if not one.get_closest_marker("slow")] == default


def test_a_variant_that_a_test_does_not_have_is_an_error() -> None:
    items: Any = [Item(f"tests/test_x.py::test_y[{name}]", "a", "d") for name in "abc"]
    with pytest.raises(pytest.UsageError, match="test_y has no variant d"):
        tiers.mark_variants(items)
    tiers.mark_variants(items[:1])  # asked for alone
    assert not items[0].get_closest_marker("slow")


def test_a_test_beyond_the_limit_is_told_its_cost_and_what_to_do() -> None:
    told = cpu_limit.excess(4.25, imported=0, limit=3)
    assert "cost 4.2 CPU seconds" in told
    assert "mark it `slow`" in told
    assert cpu_limit.excess(2.9, imported=0, limit=3) == ""
    assert cpu_limit.excess(4.25, imported=1_000, limit=3) == ""
    assert cpu_limit.excess(4.25, imported=0, limit=0) == ""


@pytest.mark.parametrize(
    ("markexpr", "slow", "fails"), [("not slow", False, True), ("not slow", True, False), ("", False, False)]
)
def test_only_tests_of_the_default_tier_have_a_limit(
    monkeypatch: pytest.MonkeyPatch, markexpr: str, slow: bool, fails: bool
) -> None:
    times = iter((1.0, 9.0))
    monkeypatch.setattr(cpu_limit, "cpu_seconds", lambda: next(times))
    item: Any = Item("tests/test_x.py::test_y")
    item.config = SimpleNamespace(option=SimpleNamespace(markexpr=markexpr, cpu_limit=3.0))
    if slow:
        item.add_marker(pytest.mark.slow)
    call = cpu_limit.pytest_runtest_call(item)
    next(call)
    if fails:
        with pytest.raises(pytest.fail.Exception, match=r"cost 8\.0 CPU seconds"):
            call.send(None)
    else:
        with pytest.raises(StopIteration):
            call.send(None)
