"""Sweeps and Suite pages with data, including cells without values."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.serving import served
from tests.browser.watch import NARROW
from tests.tiers import thinned
from tests.unit.experiments.sweep.made import bad, cell, ok, plan
from tracekit.experiments import sweep_folder
from tracekit.experiments.suite import plan as suite_plan
from tracekit.experiments.sweep_model import Outcome
from tracekit.runs.store import Store

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served

SAID = {"suite": "Speedups of single changes", "sweeps": "it asked for too much"}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, port: socket.socket) -> Iterator[Served]:
    store = Store(tmp_path_factory.mktemp("swept") / "store")
    wanted = suite_plan(only=["resnet50", "mnist_cnn", "sac"])
    suite = sweep_folder.begin(store, wanted)
    for number, one in enumerate(wanted.cells):
        suite.add(bad(one, Outcome.FAILED) if number % 5 == 4 else ok(one, 1_500_000 + number))
    fits, large = cell(batch_size=8), cell(batch_size=16)
    sweep = sweep_folder.begin(store, plan(fits, large))
    sweep.add(ok(fits, 1_500_000))
    sweep.add(bad(large, Outcome.OUT_OF_MEMORY, "it asked for too much"))
    with served(store, {"sweep": sweep.id}, port=port) as found:
        yield found


@pytest.mark.parametrize(
    ("name", "theme"),
    thinned(product(("suite", "sweeps"), ("light", "dark")), default=[("sweeps", "dark")]),
)
def test_what_was_measured_is_shown_soundly(swept: Served, tab: Opening, name: str, theme: str) -> None:
    watch = tab(swept, theme=theme)
    words = {"cells": swept.runs["sweep"]} if name == "sweeps" else {}
    page = watch.open(swept.url(name, **words))
    expect(page.get_by_text(SAID[name]).first).to_be_visible()
    assert watch.unsound() == []
    assert not "\n".join(serious(page))
    watch.resize(NARROW)
    assert watch.unsound() == []
