"""The table of defects: every entry applies, and samples of it take turns."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

from tests.mutants import ROOT, Mutant, read_table, sample

TABLE = read_table()


@cache
def default_tier_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {one.name for one in functions if "pytest.mark.slow" not in map(ast.unparse, one.decorator_list)}


def test_names_are_distinct() -> None:
    assert [name for name, count in Counter(one.name for one in TABLE).items() if count > 1] == []


@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
def test_each_defect_applies_and_its_tests_exist(one: Mutant) -> None:
    text = (ROOT / one.file).read_text(encoding="utf-8")
    changed = one.applied(text)
    assert changed != text
    if one.file.endswith(".py"):
        compile(changed, one.file, "exec")
    for test in one.tests:
        file, _, name = test.partition("::")
        assert default_tier_of(file) >= ({name} if name else set()), test


def made(count: int) -> list[Mutant]:
    return [
        Mutant(name=f"m{number}", area="", kind="", file="", original="", replacement="x", tests=())
        for number in range(count)
    ]


def names(mutants: list[Mutant]) -> list[str]:
    return [one.name for one in mutants]


def test_consecutive_samples_take_turns_through_all() -> None:
    mutants = made(7)
    whole = names(sample(mutants, 7, 0))
    assert sorted(whole) == names(mutants)
    assert whole != names(mutants)
    windows = [names(sample(mutants, 3, seed)) for seed in range(7)]
    assert [name for window in windows for name in window] == whole * 3


def test_a_sample_depends_on_nothing_but_names_and_number() -> None:
    mutants = made(7)
    assert sample(mutants, 3, 2) == sample(mutants[::-1], 3, 2)
    assert len(names(sample(mutants, 30, 5))) == len(set(names(sample(mutants, 30, 5)))) == 7
