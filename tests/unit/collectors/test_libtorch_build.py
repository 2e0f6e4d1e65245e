"""Building and caching of a C++ program, with a small program, real CMake and a real compiler."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tracekit.collectors.libtorch import prepare as build

from tests.cpp import needs_toolchain
from tests.environment import HANG_SECONDS
from tracekit.errors import CollectionError

pytest.importorskip("torch")

if TYPE_CHECKING:
    from pathlib import Path

CMAKE = """cmake_minimum_required(VERSION 3.18)
set(CMAKE_CXX_COMPILER_FORCED TRUE)  # without 40 processes that look at what the compiler can do
set(CMAKE_CXX_COMPILER_ID_RUN TRUE)
project(small LANGUAGES CXX)
execute_process(COMMAND sh -c "echo built >> '{log}'; cat '{gate}'")
add_executable(tracekit_libtorch main.cpp)
"""
DEVICES = """
#include <sstream>
#include <c10/core/Device.h>
int main() {
  std::ostringstream text;
  text << c10::Device("cpu").str() << c10::Device("cuda:1");  // torch uses a stream of its own for the first
  return text.str() == "cpucuda:1" ? 42 : 1;
}
"""
BUILD = """
import sys
from pathlib import Path
from tracekit.collectors.libtorch import prepare as build
print(build.ensure_built(on_build=lambda: None, folder=Path(sys.argv[1]), source=Path(sys.argv[2])))
"""


class Small:
    """A small program, where it is kept, and a log with one line for each time it was built."""

    def __init__(self, folder: Path) -> None:
        self.source, self.cache = folder / "source", folder / "cache"
        self.log, self.gate = folder / "log", folder / "gate"
        self.reported: list[str] = []
        self.source.mkdir()
        self.gate.touch()
        (self.source / "CMakeLists.txt").write_text(CMAKE.format(log=self.log, gate=self.gate))
        (self.source / "main.cpp").write_text("int main() { return 42; }\n")

    def built(self) -> Path:
        return build.ensure_built(
            on_build=lambda: self.reported.append("building"), folder=self.cache, source=self.source
        )

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", BUILD, str(self.cache), str(self.source)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def times_built(self) -> int:
        return len(self.log.read_text().splitlines())

    def left(self) -> list[str]:
        """Return files in the cache other than programs and locks."""
        return [path.name for path in self.cache.iterdir() if path.suffix in {".part", ".log"}]


@pytest.fixture
def small(tmp_path: Path) -> Small:
    needs_toolchain()
    return Small(tmp_path)


def test_the_program_is_built_once(small: Small) -> None:
    program = small.built()
    assert subprocess.run([program], check=False).returncode == 42
    assert small.built() == program
    assert small.times_built() == 1
    assert small.reported == ["building"]
    assert small.left() == []


def test_another_source_is_built_separately(small: Small) -> None:
    first = small.built()
    (small.source / "main.cpp").write_text("int main() { return 43; }\n")
    second = small.built()
    assert [subprocess.run([one], check=False).returncode for one in (first, second)] == [42, 43]


@pytest.mark.slow  # CMake tries the compiler, and torch's headers are compiled
def test_a_compiler_without_a_shared_runtime_uses_that_of_torch(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nexec c++ -static-libstdc++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    (small.source / "main.cpp").write_text(DEVICES)
    shutil.copy(build.SOURCE / "CMakeLists.txt", small.source)
    assert subprocess.run([small.built()], check=False).returncode == 42


@pytest.mark.slow
def test_concurrent_requests_build_once(small: Small) -> None:
    both = [small.start(), small.start()]
    reported = {one.communicate(timeout=HANG_SECONDS)[0] for one in both}
    assert [one.returncode for one in both] == [0, 0]
    assert reported == {f"{small.built()}\n"}
    assert small.times_built() == 1


@pytest.mark.slow
def test_a_killed_build_is_repeated(small: Small) -> None:
    small.gate.unlink()
    os.mkfifo(small.gate)
    building = small.start()
    with small.gate.open("w"):  # CMake has come as far as the gate
        os.killpg(building.pid, signal.SIGKILL)
        building.communicate()
    assert [name for name in small.left() if name.endswith(".part")]
    small.gate.unlink()
    small.gate.touch()
    assert subprocess.run([small.built()], check=False).returncode == 42
    assert small.left() == []


def test_a_compiler_error_is_in_the_message(small: Small) -> None:
    (small.source / "main.cpp").write_text("int main() { return missing; }\n")
    with pytest.raises(CollectionError, match=r"could not be compiled: .*missing") as caught:
        small.built()
    [log] = small.left()
    assert caught.value.hint.endswith(log)
    assert [path.name for path in small.cache.iterdir() if path.is_dir()] == []


def test_missing_tools_are_named_with_the_next_step(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(small.source))
    monkeypatch.delenv("CXX", raising=False)
    missing = r"no CMake and no C\+\+ compiler and no ninja or make found.*apt-get"
    with pytest.raises(CollectionError, match=missing):
        small.built()
    assert small.reported == []
    assert not small.cache.exists()


def test_an_unwritable_cache_is_an_error(small: Small, tmp_path: Path) -> None:
    small.cache = tmp_path / "gate" / "below_a_file"
    with pytest.raises(CollectionError, match="set XDG_CACHE_HOME"):
        small.built()
