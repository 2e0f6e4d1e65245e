from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import changed_first, cpu_limit, environment, tiers
from tests.object_storage import serving
from tests.shared_runs import SharedRuns, make_analyzed_store
from tracekit import storage
from tracekit.runs.store import Store
from tracekit.storage import filesystems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.object_storage import Server

    Git = Callable[..., str]

_BROWSER_TESTS = "tests/browser/"


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)
    cpu_limit.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    environment.normalize()
    gc.set_threshold(50_000, 20, 50)  # a collection visits all that the tests of a process left in memory
    tiers.choose(config)
    for plugin in (cpu_limit, changed_first):
        config.pluginmanager.register(plugin)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.is_left_out(collection_path, config) or None


def pytest_collection(session: pytest.Session) -> None:
    """Import the tests from the last file on in the second worker.

    In a new checkout the worker that comes to a file first compiles it, and the other one reads the bytecode.
    """
    is_second = os.environ.get("PYTEST_XDIST_WORKER") == "gw1"
    if is_second and [Path(path).resolve() for path in session.config.args] == [tiers.TESTS]:
        for file in sorted(tiers.TESTS.rglob("test_*.py"), reverse=True):
            if not any(tiers.is_left_out(folder, session.config) for folder in file.parents):
                with suppress(Exception, pytest.skip.Exception):  # collecting it says what is wrong
                    import_module(".".join(file.relative_to(tiers.TESTS.parent).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.mark_folders(items)
    tiers.mark_variants(items)
    tiers.mark_properties(config, items)
    tiers.keep_shard(config, items)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a worker whole files, and in the default tier all browser tests.

    These share a server with the results of its runs, and a browser with its compiled scripts.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            is_browser = file.startswith(_BROWSER_TESTS) and tiers.tier_of(config) == tiers.DEFAULT
            return _BROWSER_TESTS if is_browser else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    gc.freeze()  # collections need not visit modules and collected tests, which stay


@pytest.fixture(scope="session", autouse=True)
def _compile_decoder() -> None:
    """Compile the decoder of traces where it is not cached: the CPU time would count as that of a test."""
    with suppress(ImportError):  # without the extra `fast` there is nothing to compile
        from tracekit.ingest.kineto.scan import native

        if not native.is_compiled():
            code = "from tracekit.ingest.kineto.scan import native; native.compiled()"
            subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="session")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> SharedRuns:
    """Runs of traces that tests only read, each imported once."""
    return SharedRuns(Store(tmp_path_factory.mktemp("shared") / "store"))


@pytest.fixture(scope="session")
def analyzed_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store to copy: it has the run of the simulated sample, and its cache the results of all analyses.

    One worker makes it for all.
    """
    base = tmp_path_factory.getbasetemp()
    return make_analyzed_store(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="module", autouse=True)
def _shared_runs_stay_as_they_are(shared_runs: SharedRuns) -> Iterator[None]:
    yield
    assert shared_runs.changed() == []


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def outside_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test in its folder: a recording asks git about the repository that it runs in."""
    monkeypatch.chdir(tmp_path)


def _read_head() -> str | None:
    """The commit that is checked out, where git keeps it in a file of its own."""
    try:
        head = Path(".git/HEAD").read_text().strip()
        return Path(".git", head.removeprefix("ref: ")).read_text().strip() if "ref:" in head else head
    except OSError:
        return None


def _run_git(*arguments: str) -> str:
    if arguments == ("rev-parse", "HEAD") and (head := _read_head()):
        return head  # what most tests ask needs no process
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _set_git_variables(monkeypatch: pytest.MonkeyPatch, ceiling: Path) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(ceiling))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Tester")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tester@example.org")


_GIT_SETTINGS = {
    "core.checkStat": "minimal",  # with the next, the files of a copy are unchanged, whatever their inodes
    "core.trustctime": "false",
    "maintenance.auto": "false",  # which starts processes after each commit
}


@pytest.fixture(scope="session")
def _repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit, to be copied."""
    repository = tmp_path_factory.mktemp("git") / "repository"
    with pytest.MonkeyPatch.context() as monkeypatch:
        _set_git_variables(monkeypatch, repository.parent)
        _run_git("init", "--quiet", "--initial-branch=main", "--template=", str(repository))
        monkeypatch.chdir(repository)
        Path("file.txt").write_text("one\n")
        _run_git("add", ".")
        _run_git("commit", "--quiet", "--message=first")
        for name, value in _GIT_SETTINGS.items():
            _run_git("config", name, value)
    return repository


@pytest.fixture
def git(_repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git in a new repository with one commit, which is the current directory."""
    repository = shutil.copytree(_repository, tmp_path / "repository")
    monkeypatch.chdir(repository)
    _set_git_variables(monkeypatch, tmp_path)
    return _run_git


@pytest.fixture(scope="session")
def _s3() -> Iterator[Server]:
    pytest.importorskip("moto", reason="moto, which stands in for S3, is not installed")
    with serving() as server:
        yield server


@pytest.fixture
def s3(_s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that speaks S3 with a bucket named `bucket`, which the environment tells how to reach."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**_s3.variables(), "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    # the server is a thread of this process: on a busy machine its answer may take longer than usual
    monkeypatch.setattr(filesystems, "REQUEST_SECONDS", 100.0)
    _s3.begin("bucket")
    return _s3


@pytest.fixture
def remote(s3: Server) -> Store:
    """A store on object storage."""
    return Store(storage.parse("s3://bucket/some runs é"))
