"""The two tiers of tests, the shards of the slow one, and how many examples a property test tries in each.

The default tier is `pytest -n 2`; the slow tier is `pytest -n 2 -m slow`. Property tests run in both, with
ten times the examples in the slow one. Of the variants of a test with the marker `slow_except`, the default
tier runs the first few, or those of the ids given:

    @pytest.mark.slow_except(2)
    @pytest.mark.slow_except("kernels", "idle_gaps")

`--shard 2/6` runs the third sixth of the selected tests: continuous
integration runs the shard that the number of commits gives, so that all take turns.
"""

from __future__ import annotations

import argparse
import os
import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from _pytest.mark import ParameterSet

Value = TypeVar("Value")

DEFAULT, SLOW = "default tier", "slow tier"
UNTIMED = [HealthCheck.too_slow]
"""Health checks that depend on the machine's speed: off in all tests, also where a test turns off others."""
_FEWER = 10
"""A property test tries one in so many of its examples in the default tier."""
_LEAST = 3
TESTS = Path(__file__).parent
SLOW_FOLDERS = ("docs", "fuzz", "unit/benchmarks", "unit/proof")
"""Folders of tests whose subject is not the product: who changes it runs them with `-m slow`."""


def choose(config: pytest.Config) -> None:
    """Load the hypothesis profile of the tier that `-m` selects; call it before tests are imported."""
    # timings never decide a test, nor how long its examples take to draw on a busy machine; and where
    # changes are judged, each is asked the same
    common = {
        "deadline": None,
        "derandomize": "CI" in os.environ,
        "suppress_health_check": UNTIMED,
    }
    settings.register_profile(SLOW, **common)
    settings.register_profile(DEFAULT, **common, max_examples=examples(100, tier=DEFAULT))
    settings.load_profile(tier_of(config))


def add_options(parser: pytest.Parser) -> None:
    """Declare `--shard`."""
    parser.addoption("--shard", metavar="K/N", type=_parse_shard, help="run shard K (from 0) of N only")


def _parse_shard(text: str) -> tuple[int, int]:
    shard, _, shards = text.partition("/")
    if not (shard.isdecimal() and shards.isdecimal() and int(shard) < int(shards)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shard K/N with 0 <= K < N, such as 2/6")
    return int(shard), int(shards)


def keep_shard(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other shards; a test stays in its shard when others are added or removed."""
    if config.option.shard is None:
        return
    shard, shards = config.option.shard
    kept, others = [], []
    for item in items:
        mine = zlib.crc32(item.nodeid.encode()) % shards == shard
        (kept if mine else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


def tier_of(config: pytest.Config) -> str:
    """The tier that the marker expression selects; one that excludes nothing is the slow one."""
    return DEFAULT if "not slow" in config.option.markexpr else SLOW


def examples(most: int, *, tier: str | None = None) -> int:
    """How many examples of `most` the tier tries."""
    chosen = tier or settings.get_current_profile_name()
    return most if chosen == SLOW else max(most // _FEWER, min(most, _LEAST))


def thinned(values: Iterable[Value], *, default: Container[Value]) -> list[Value | ParameterSet]:
    """Parameters of a test of which all but the default ones are in the slow tier alone.

    A tuple is the values of several parameters.
    """
    return [one if one in default else _slow(one) for one in values]


def _slow(value: Any) -> ParameterSet:
    return pytest.param(*value if isinstance(value, tuple) else (value,), marks=pytest.mark.slow)


def is_left_out(path: Path, config: pytest.Config) -> bool:
    """Whether a path is a folder that only the slow tier has, which the default one need not even import."""
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    folders = {TESTS / folder for folder in SLOW_FOLDERS}
    return (
        tier_of(config) == DEFAULT
        and path in folders
        and not any(path in (one, *one.parents) for one in named)
    )


def mark_folders(items: list[pytest.Item]) -> None:
    """Leave tests of documents, fuzzing, the proof kit and benchmarks to the slow tier."""
    folders = tuple(f"{TESTS / folder}{os.sep}" for folder in SLOW_FOLDERS)
    for item in items:
        if str(item.path).startswith(folders):
            item.add_marker(pytest.mark.slow)


def mark_variants(items: list[pytest.Item]) -> None:
    """Leave variants of a test that its marker `slow_except` does not keep to the slow tier.

    Raises:
        UsageError: The marker names a variant that the test does not have.
    """
    variants: dict[str, list[tuple[str, pytest.Item]]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow_except"):
            test, _, variant = item.nodeid.partition("[")
            variants[test].append((variant[:-1], item))
    for test, found in variants.items():
        args = found[0][1].get_closest_marker("slow_except").args  # type: ignore[union-attr]
        names = [name for name, _ in found]
        kept = names[: args[0]] if isinstance(args[0], int) else args
        if len(found) > len(kept) and not set(kept) <= set(names):  # fewer may be those asked for
            raise pytest.UsageError(f"{test} has no variant {', '.join(sorted(set(kept) - set(names)))}")
        for name, item in found:
            if name not in kept:
                item.add_marker(pytest.mark.slow)


def mark_properties(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select property tests for the slow tier as well, where they try all of their examples."""
    if tier_of(config) == SLOW:
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.slow)
