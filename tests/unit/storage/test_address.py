from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.runs.store import Store, locate
from tracekit.storage import RemotePath, filesystems

_LETTERS = st.characters(exclude_characters="/", exclude_categories=["Cs"])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("s3://bucket", "bucket"),
        ("s3://bucket/", "bucket"),
        ("S3://bucket//a///b/", "bucket/a/b"),
        ("s3://bucket/my%20runs/é ü", "bucket/my runs/é ü"),
        ("s3://bucket/50%25", "bucket/50%"),
        ("gs://bucket/a#b@c", "bucket/a#b@c"),
    ],
)
def test_what_an_address_names(text: str, key: str) -> None:
    place = storage.parse(text)
    assert isinstance(place, RemotePath)
    assert (place.key, place.scheme) == (key, text[:2].lower())


@pytest.mark.parametrize("text", ["runs", "/var/a b", "C:thing", "-", "a/b.json", "git:HEAD"])
def test_anything_else_is_a_path(text: str) -> None:
    assert storage.parse(text) == Path(text)


def test_file_addresses() -> None:
    assert storage.parse("file:///a%20b/c") == Path("/a b/c")
    assert storage.parse("file://localhost/a") == Path("/a")
    with pytest.raises(UnusableInputError, match="another machine"):
        storage.parse("file://server/share")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ftp://host/x", "not supported"),
        ("s3://", "is not a valid URL"),
        ("s3:///key", "is not a valid URL"),
        ("s3://bucket/../other", "is not a valid URL"),
        ("s3://bucket/%2E%2E/other", "is not a valid URL"),
        ("s3://bucket?colour=red", "unknown option 'colour'"),
    ],
)
def test_addresses_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(UnusableInputError, match=said):
        storage.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIA:hush-hush@bucket/runs",
        "s3://bucket/runs?secret_key=hush-hush",
        "s3://bucket/runs?access_key=a&session_token=hush-hush",
        "gs://bucket?access_token=hush-hush",
    ],
)
def test_credentials_are_neither_taken_nor_repeated(text: str) -> None:
    with pytest.raises(UnusableInputError, match="credentials") as caught:
        storage.parse(text)
    assert "hush" not in f"{caught.value.message} {caught.value.hint}"


@given(
    st.lists(
        st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1), max_size=4
    ),
    st.dictionaries(
        st.sampled_from(["region", "endpoint_override", "scheme"]), st.text(st.characters(codec="ascii"))
    ),
)
def test_an_address_is_spelled_as_it_is_read(names: list[str], options: dict[str, str]) -> None:
    names = [name for name in names if name not in {".", ".."}]
    place = RemotePath("s3", "/".join(["bucket", *names]), tuple(sorted(options.items())))
    assert storage.parse(str(place)) == place
    assert pickle.loads(pickle.dumps(place)) == place  # noqa: S301 (our own)


def test_a_place_answers_as_a_path_does() -> None:
    remote, local = RemotePath("s3", "bucket/a/b.tar.gz"), Path("/bucket/a/b.tar.gz")
    assert (remote.name, remote.suffix) == (local.name, local.suffix)
    assert remote.with_suffix(".x").name == local.with_suffix(".x").name
    assert remote.parent.name == local.parent.name
    assert [one.name for one in remote.parents] == [one.name for one in local.parents][:2]
    assert (remote.parent / "c/d").key == "bucket/a/c/d"
    assert len({remote, remote.parent / "b.tar.gz"}) == 1
    assert remote.resolve() is remote
    assert sorted([remote, remote.parent]) == [remote.parent, remote]


def test_the_store_may_be_an_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACEKIT_STORE", "s3://bucket/runs")
    assert locate() == RemotePath("s3", "bucket/runs")
    assert locate(tmp_path.as_uri()) == tmp_path
    assert locate("~") == Path.home()


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert storage.cache_folder("scan") == tmp_path / "tracekit" / "scan"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which its specification says to ignore
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage.cache_folder("scan") == tmp_path / ".cache" / "tracekit" / "scan"


def test_what_is_no_run_stays_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, other = (Store(RemotePath("gs", f"bucket/{name}")) for name in "ab")
    assert one.local_folder != other.local_folder
    assert one.local_folder.is_relative_to(tmp_path)
    assert Store(tmp_path / "store").local_folder == tmp_path / "store"
    assert one.folder(".results").is_dir()


def test_globs_of_addresses_and_of_paths_that_no_shell_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage.expand("missing.json") == [Path("missing.json")]
    Path("a[0]*.json").touch()
    assert storage.expand("a[0]*.json") == [Path("a[0]*.json")]  # its name
    Path("a[0]*.json").unlink()
    assert storage.expand((tmp_path / "x.json").as_uri()) == [tmp_path / "x.json"]
    for name in ("a/1.json", "a/b/2.json", "a/b/3.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    root = f"file://{tmp_path}"
    assert [one.name for one in storage.expand(f"{root}/**/*.json")] == ["1.json", "2.json"]
    assert [one.name for one in storage.expand(f"{root}/a/*/[23]*")] == ["2.json", "3.txt"]
    assert storage.expand("a/*.json") == [Path("a/1.json")]
    for text in (f"{root}/*.gz", "a/*.gz"):
        with pytest.raises(UnusableInputError, match="nothing matches"):
            storage.expand(text)


def test_google_is_reached_with_what_the_address_says() -> None:
    place = storage.parse("gs://bucket/runs?anonymous=true&endpoint_override=http://127.0.0.1:1")
    assert isinstance(place, RemotePath)
    assert place.filesystem.type_name == "gcs"
    with pytest.raises(UnusableInputError, match="neither true nor false"):
        _ = storage.parse("gs://bucket?anonymous=perhaps").filesystem


def test_an_endpoint_may_have_a_scheme() -> None:
    arguments = filesystems._arguments((("anonymous", "1"),), "http://127.0.0.1:9000/")
    assert arguments == {"endpoint_override": "127.0.0.1:9000", "scheme": "http", "anonymous": True}
