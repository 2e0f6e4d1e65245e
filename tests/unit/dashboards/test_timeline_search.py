"""What a search of the timeline by category stands for."""

from __future__ import annotations

import pytest

pytest.importorskip("dash")

from types import SimpleNamespace

import numpy as np
from tracekit.dashboards.timeline.read_columns import CATEGORIES
from tracekit.dashboards.timeline.search import CATEGORY, Query

NAMES = SimpleNamespace(names=SimpleNamespace(category_of=np.arange(len(CATEGORIES))))
"""An index with a label for each category."""


def categories(text: str) -> set[str]:
    mask = Query(text=text, mode=CATEGORY).labels(NAMES)  # type: ignore[arg-type]
    return {name for name, chosen in zip(CATEGORIES, mask, strict=True) if chosen}


def test_idle_stands_for_idle_time_of_every_cause() -> None:
    assert categories("idle") == {name for name in CATEGORIES if "idle" in name}
    assert len(categories("idle")) > 5


def test_the_whole_name_of_a_category_stands_for_it_alone() -> None:
    assert categories("conv") == {"conv"}
    assert categories("Memcpy_") == set()
    assert categories("compute") == categories("kernel") - {"communication"}
