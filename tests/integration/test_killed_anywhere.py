"""Whatever is killed, and whenever: what is listed is whole, and what is not is freed without a rest.

The disk may be full at any moment too: then it is one line, and nothing is left that had to be freed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.integration.kills import COLLECTIONS, IMPORTS, ROOT, Scene, at_random, scene_in
from tests.tiers import thinned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOME = 4
"""Operations that are tried where trying all of them takes long."""
MOMENTS = 4
"""Kills at random moments of each; `python -m tests.integration.kills 200` does more."""


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One for all tests, each of which leaves it without a run: caches are filled once."""
    if request.param in COLLECTIONS:
        pytest.importorskip("torch")
    with scene_in(tmp_path_factory.mktemp("scene"), request.param) as made:
        yield made


SHORTEST = IMPORTS[0]
every_import = pytest.mark.parametrize("scene", IMPORTS, indirect=True)
some_imports = pytest.mark.parametrize("scene", thinned(IMPORTS, default=[SHORTEST]), indirect=True)
collections = pytest.mark.parametrize("scene", COLLECTIONS, indirect=True)
all_scenes = pytest.mark.parametrize("scene", IMPORTS + COLLECTIONS, indirect=True)
long = pytest.mark.timeout(1800)


def some(scene: Scene) -> list[int]:
    """The first operation, the last, and some in between."""
    count = scene.operations
    between = random.Random(scene.name).sample(range(2, count), SOME)
    return [1, *sorted(between), count]


@some_imports
def test_killed_at_some_operations_on_files(scene: Scene) -> None:
    for number in some(scene):
        after = scene.kill_at(number)
        assert after.operation.startswith(f"{number} ")
        assert not after.ended, after


@pytest.mark.slow
@long
@collections
def test_collections_killed_at_some_operations_on_files(scene: Scene) -> None:
    states = [scene.kill_at(number).state for number in some(scene)]
    assert states[-1] == "a run"
    assert states == sorted(states, key=lambda state: state == "a run")  # from the rename on it stays


@pytest.mark.slow
@long
@every_import
def test_killed_at_every_operation_on_files(scene: Scene) -> None:
    afters = [scene.kill_at(number) for number in range(1, scene.operations + 1)]
    assert [int(after.operation.split()[0]) for after in afters] == list(range(1, len(afters) + 1))
    assert not any(after.ended for after in afters)
    states = [after.state for after in afters]
    assert states[-1] == "a run"
    listed = states.index("a run")
    assert set(states[:listed]) <= {"nothing", "an empty store", "a draft"}
    assert set(states[listed:]) == {"a run"}  # from the rename on it stays


@pytest.mark.slow
@long
@all_scenes
def test_killed_at_any_moment(scene: Scene) -> None:
    assert len(at_random(scene, MOMENTS, seed=1)) == MOMENTS


@some_imports
def test_a_disk_that_is_full_at_some_operation(scene: Scene) -> None:
    codes = []
    for number in some(scene):
        code, said = scene.full_at(number)
        _told_in_a_line(code, said)
        codes.append(code)
    assert 2 in codes


@pytest.mark.slow
@long
@collections
def test_a_disk_that_is_full_at_some_operation_of_a_collection(scene: Scene) -> None:
    for number in some(scene):
        _told_in_a_line(*scene.full_at(number))


@pytest.mark.slow
@long
@every_import
def test_a_disk_that_is_full_at_every_operation(scene: Scene) -> None:
    codes = []
    for number in range(1, scene.operations + 1):
        code, said = scene.full_at(number)
        _told_in_a_line(code, said)
        codes.append(code)
    assert 2 in codes


def _told_in_a_line(code: int, said: str) -> None:
    assert code in {0, 2}
    if code:
        assert said.startswith("tracekit: "), said
        assert "No space left on device" in said, said
        assert "--store" in said or "XDG_CACHE_HOME" in said or "--debug" in said, said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tracekit", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["kineto in chunks"], indirect=True)
def test_a_disk_that_is_full_indeed(scene: Scene, small_disk: Path) -> None:
    shutil.rmtree(scene.store.path, ignore_errors=True)
    scene.store.path.symlink_to(small_disk)
    code, said = scene.full_at(10_000)  # its own room ends before
    scene.store.path.unlink()
    assert code == 2
    assert "No space left on device" in said
    assert "cannot be written" in said
    assert ROOT.is_dir()
    assert [path.name for path in small_disk.iterdir() if path.name != ".gitignore"] == []
