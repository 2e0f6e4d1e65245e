"""With the oldest and with the newest packages that it allows, tracekit imports, analyzes and serves.

The slow tier tries the oldest packages on the oldest Python there is, and the newest on the newest;
`just installs` tries both on every Python from 3.11.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.environment import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "samples/simulated/training.json.gz"
SOURCES = ("tracekit", "analyses", "collectors", "dashboards", "pyproject.toml", "README.md", "LICENSE")
PYTHONS = ("3.11", "3.12", "3.13")
OLDEST, NEWEST = "lowest-direct", "highest"
NOTHING_CAN_BE_COLLECTED = 5
UNREACHABLE = ("Failed to fetch", "Failed to download", "error sending request", "timed out")
"""What uv says without a network."""
EVERY = "TRACEKIT_TEST_INSTALLS"
"""Set to try both on every Python."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def uv(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def found(python: str) -> str | None:
    """The interpreter of a version of Python, on the PATH or installed by pyenv; None if there is none."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = [str(path) for path in sorted(root.glob(f"versions/{python}.*/bin/python"))]
    return installed[-1] if installed else shutil.which(f"python{python}")


def cases() -> list[tuple[str, str]]:
    if find_spec("uv") is None:
        return []
    there = [python for python in PYTHONS if found(python)]
    if os.environ.get(EVERY):
        return [(python, kind) for python in there for kind in (OLDEST, NEWEST)]
    return [(there[0], OLDEST), (there[-1], NEWEST)] if there else []


def copy_sources(copy: Path) -> None:
    """Copy what the package is built from into a new folder."""
    copy.mkdir()
    tracked = subprocess.run(
        ["git", "ls-files", "-z", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, tracked.stdout.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())


def install(folder: Path, python: str, packages: str, extras: str) -> Path:
    """Install the sources into a new environment, and return its folder of commands."""
    copy = folder / "sources"
    copy_sources(copy)
    environment = folder / "environment"
    interpreter = found(python)
    assert interpreter
    made = uv("venv", "--quiet", "--no-project", "--python", interpreter, str(environment), cwd=folder)
    assert made.returncode == 0, made.stderr
    target = ["--python", str(environment / "bin/python"), "--resolution", packages]
    wheels = ["--only-binary", ":all:", "--no-binary", "tracekit-torch"]
    done = uv("pip", "install", "--quiet", *target, *wheels, f"{copy}{extras}", cwd=folder)
    if any(said in done.stderr for said in UNREACHABLE):
        pytest.skip("the package registry cannot be reached")
    assert done.returncode == 0, done.stderr
    return environment / "bin"


class Commands:
    """The commands of an installed tracekit, with a store of their own."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.program = str(programs / "tracekit")
        self.folder = folder
        hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TRACEKIT_STORE"}
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        self.environment = kept | {"TRACEKIT_STORE": str(folder / "store"), "XDG_CACHE_HOME": str(folder)}

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [self.program, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == code, (arguments, done.stderr)
        return done.stdout

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the dashboard, and yield its address."""
        serving = [self.program, "dashboard", "--port", "0"]
        with subprocess.Popen(
            serving,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                said = process.stdout.readline()
                address = re.search(r"http://\S+?(?=/? \()", said)
                assert address, said + process.stdout.read()
                yield address[0]
            finally:
                process.terminate()


CASES = cases()


@pytest.mark.skipif(not CASES, reason="needs uv, and Python 3.11 to 3.13")
@pytest.mark.parametrize(("python", "packages"), CASES)
def test_imports_analyzes_and_serves(python: str, packages: str, tmp_path: Path) -> None:
    tracekit = Commands(install(tmp_path, python, packages, "[dashboard]"), tmp_path)
    run = tracekit("import", str(TRACE)).strip()
    shown = tracekit("analyze", run)
    assert "integrity: good" in shown
    assert "failed:" not in shown
    assert "few_blocks" in tracekit("findings", run, "--more")
    assert '"rows":26' in tracekit(
        "query", "SELECT count(*) AS rows FROM device_intervals", "--format", "json"
    ).replace(" ", "")
    assert "\nplug-ins,ok," in tracekit("doctor", "--format", "csv", code=NOTHING_CAN_BE_COLLECTED)
    with tracekit.served() as address:
        for path in ("/", "/_dash-layout", "/_dash-dependencies"):
            with urllib.request.urlopen(f"{address}{path}", timeout=HANG_SECONDS) as answer:  # noqa: S310 (of this test)
                assert answer.status == 200
                assert answer.read()
