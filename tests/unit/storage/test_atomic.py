from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit import storage
from tracekit.storage.atomic import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from tests.object_storage import Server


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> storage.Place:
    if request.param == "disk":
        return tmp_path / "folder"
    request.getfixturevalue("s3")
    return storage.parse("s3://bucket/folder")


def test_a_file_is_there_when_it_is_written(folder: storage.Place) -> None:
    content = b"1" * (11 << 20)  # more than one part of an upload
    with storage.put(folder / "sub" / "one") as file:
        file.write_bytes(content)
        assert not (folder / "sub" / "one").is_file()
    assert (folder / "sub" / "one").read_bytes() == content
    assert [one.name for one in storage.inside(folder, deep=True) if one.is_file()] == ["one"]


def test_a_failure_leaves_what_was_there(folder: storage.Place) -> None:
    with storage.put(folder / "one") as file:
        file.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt):
        _interrupted(folder / "one")
    assert (folder / "one").read_bytes() == b"before"
    assert [one.name for one in storage.inside(folder, deep=True) if one.is_file()] == ["one"]


def _interrupted(place: storage.Place) -> None:
    with storage.put(place) as file:
        file.write_bytes(b"aft")
        raise KeyboardInterrupt


def test_what_is_far_is_brought_here(folder: storage.Place, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with storage.put(folder / "in" / name) as file:
            file.write_text(name)
    (tmp_path / "here").mkdir()
    copy = storage.fetch(folder / "in", tmp_path / "here")
    assert {one.name: one.read_text() for one in copy.iterdir()} == {"a": "a", "b": "b"}
    assert storage.fetch(folder / "in" / "a", tmp_path / "here").read_bytes() == b"a"


def test_what_is_not_there_is_said_as_of_files(folder: storage.Place, s3: Server) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        (folder / "nothing").read_bytes()
    with pytest.raises(FileNotFoundError):
        (folder / "nothing").stat()
    with pytest.raises(FileNotFoundError):
        (folder / "nothing").open("rb").close()
    assert not (folder / "nothing").is_file()
    assert not list(folder.glob("*"))


def test_a_file_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "file"
    for text in ("before", "after"):
        with write_atomically(path, durable=True) as temporary:
            temporary.write_text(text)
    assert path.read_text() == "after"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_is_renamed_into_place_or_deleted(tmp_path: Path) -> None:
    target, temporary = tmp_path / "folder", tmp_path / ".part"
    with pytest.raises(KeyboardInterrupt):
        _write_folder(target, temporary, KeyboardInterrupt())
    assert list(tmp_path.iterdir()) == []
    _write_folder(target, temporary, None)
    assert [entry.name for entry in target.iterdir()] == ["file"]
    assert list(tmp_path.iterdir()) == [target]


def _write_folder(target: Path, temporary: Path, error: BaseException | None) -> None:
    with write_atomically(target, temporary=temporary):
        temporary.mkdir()
        (temporary / "file").touch()
        if error:
            raise error
