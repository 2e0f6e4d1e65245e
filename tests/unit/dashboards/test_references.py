"""Run ids in addresses select runs of the store, or nothing."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import PurePath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.runs import make_run

pytest.importorskip("dash")

from tracekit.dashboards.app import create_app
from tracekit.dashboards.components.links import display_name
from tracekit.dashboards.pages.runs.dialogs import delete_runs
from tracekit.dashboards.site import Site
from tracekit.dashboards.timeline import routes

from tracekit.errors import UnusableInputError
from tracekit.runs.meta import Git
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = [
    "..",
    "../other",
    "../../other/x",
    "%2e%2e",
    "a\0b",
    ".results",
    ".",
    "*",
    "\u202e",
    "x" * 5000,
    "",
]


@pytest.fixture
def site(store: Store) -> Site:
    make_run(store)
    app = create_app(store)
    made = Site(app=app, store=store, pages={})
    routes.connect(made)
    return made


@pytest.mark.parametrize("run_id", HOSTILE)
def test_a_hostile_address_reads_and_deletes_nothing(run_id: str, site: Site, tmp_path: Path) -> None:
    outside = make_run(Store(tmp_path / "other"))
    shutil.copytree(outside.path, tmp_path / "x")
    asked = site.app.server.test_client()
    for address in (f"/timeline/{quote(run_id, safe='')}/lanes", f"/timeline/{run_id}/lanes"):
        answer = asked.get(address)
        assert "lanes" not in (answer.get_json(silent=True) or {})
        assert outside.path.name not in answer.text
        assert "Traceback" not in answer.text
    assert site.run(run_id) is None
    delete_runs(site, [run_id])
    assert len(site.store.runs()) == 1
    assert (outside.path / "run.json").is_file()


def test_a_link_out_of_the_store_is_not_deleted_from_the_page(site: Site, tmp_path: Path) -> None:
    outside = make_run(Store(tmp_path / "other"), after_s=5)
    (site.store.path / outside.path.name).symlink_to(outside.path)
    with pytest.raises(UnusableInputError, match="is not in the store"):
        delete_runs(site, [outside.path.name])
    assert (outside.path / "run.json").is_file()


@pytest.mark.parametrize(
    ("label", "run_id", "shown"),
    [
        ("", "20261121T031500Z-resnet50-train-1f3a9c", "resnet50-train · abcdef0+ · 3 h ago · 1f3a9c"),
        ("baseline", "20261121T031500Z-resnet50-train-1f3a9c", "baseline · abcdef0+ · 3 h ago · 1f3a9c"),
        ("baseline", "mine", "baseline · abcdef0+ · 3 h ago · mine"),
        ("", "mine", "mine"),
    ],
)
def test_the_name_of_a_run_begins_with_what_tells_it_from_others(label: str, run_id: str, shown: str) -> None:
    git = Git("abcdef0123456789", "", "main", dirty=True, diff_sha256=None, commit_time="")
    header = SimpleNamespace(label=label, git=git, created_at="2026-11-21T03:15:00Z")
    run: Any = SimpleNamespace(header=header, path=PurePath(run_id))
    now = datetime(2026, 11, 21, 6, 20, tzinfo=UTC)
    assert display_name(run, now) == shown
    header.label = "y" * 100
    assert len(display_name(run, now)) <= 60
