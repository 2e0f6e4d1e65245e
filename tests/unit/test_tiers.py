"""The rules of the default tier: which variants it runs, and what a test of it may cost."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests import cpu_limit, tiers


class Item:
    """A collected test, as far as tiers look at it."""

    def __init__(self, nodeid: str, *kept: object) -> None:
        self.path = tiers.TESTS.parent / nodeid.partition("::")[0]
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


@pytest.mark.parametrize(
    ("markexpr", "arguments", "left_out"),
    [
        ("not slow", ["tests"], True),
        ("not slow", ["tests/docs/test_site.py::test_x"], False),
        ("slow", ["tests"], False),
    ],
)
def test_folders_of_the_slow_tier_are_not_imported_unless_they_are_asked_for(
    markexpr: str, arguments: list[str], left_out: bool
) -> None:
    root = tiers.TESTS.parent
    config: Any = SimpleNamespace(
        option=SimpleNamespace(markexpr=markexpr), args=[str(root / argument) for argument in arguments]
    )
    assert tiers.is_left_out(tiers.TESTS / "docs", config) == left_out
    assert not tiers.is_left_out(tiers.TESTS / "golden", config)


def test_a_test_beyond_the_limit_is_told_its_cost_and_what_to_do() -> None:
    told = cpu_limit.excess(4.25, imported=0, limit=3)
    assert "cost 4.2 CPU seconds" in told
    assert "mark it `slow`" in told
    assert cpu_limit.excess(2.9, imported=0, limit=3) == ""
    assert cpu_limit.excess(4.25, imported=1_000, limit=3) == ""
    assert cpu_limit.excess(4.25, imported=0, limit=0) == ""


@pytest.mark.parametrize(
    ("markexpr", "marks", "fails"),
    [
        ("not slow", [], True),
        ("not slow", ["slow"], False),
        ("not slow", ["browser"], False),
        ("", [], False),
    ],
)
def test_only_tests_of_the_default_tier_have_a_limit(
    markexpr: str, marks: list[str], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_limit, "slowness", lambda: 1.0)
    item: Any = Item("tests/test_x.py::test_y")
    item.config = SimpleNamespace(option=SimpleNamespace(markexpr=markexpr, cpu_limit=3.0))
    for mark in marks:
        item.add_marker(getattr(pytest.mark, mark))
    with pytest.raises(pytest.fail.Exception, match=r"cost 8\.0 CPU seconds") if fails else nullcontext():
        cpu_limit.check(item, 8.0, imported=0)


def test_tests_of_real_programs_may_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_limit, "slowness", lambda: 1.0)
    item: Any = Item("tests/integration/test_x.py::test_y")
    item.config = SimpleNamespace(option=SimpleNamespace(markexpr="not slow", cpu_limit=3.0))
    cpu_limit.check(item, 11.0, imported=0)
    with pytest.raises(pytest.fail.Exception, match="the limit is 12"):
        cpu_limit.check(item, 13.0, imported=0)
    monkeypatch.setattr(cpu_limit, "slowness", lambda: 1.2)  # the machine is slow at the moment
    cpu_limit.check(item, 13.0, imported=0)
