"""Stored runs with damaged files, read by commands."""

from __future__ import annotations

import io
import json
import os
import tempfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fuzz.case import Case
from fuzz.checks import DefectError, check_message
from fuzz.commands import HERE, command
from fuzz.damage import damage
from fuzz.json_document import change_document, to_json
from fuzz.parquet import change_rows
from samples.simulator import write
from samples.simulator.examples import training
from tracekit.cli.main import run
from tracekit.ingest.importer import import_traces
from tracekit.runs.meta import FILE_NAME, Diagnostic, Git, Level, Timings
from tracekit.runs.meta import write as write_meta
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_WORDS = (b"PAR1", b'"', b"{", b"null", b"1e400", b"\xff", b"\\ud800", b"\x1b[2J", b"9" * 30, b"[" * 2000)
RUN = "20261121T000000Z-fuzzed-000000"
_KNOWN: dict[str, Any] = {
    "run_id": RUN,
    "created_at": "2026-11-21T00:00:00Z",
    "workload": {"name": "resnet50", "mode": "train", "level": "eager", "device": "cuda", "batch_size": 32},
    "command": ["train.py", "--epochs", "1"],
    "git": Git(
        sha="a" * 40,
        tree="b" * 40,
        branch="main",
        dirty=False,
        diff_sha256=None,
        commit_time="2026-11-21T00:00:00Z",
    ),
    "timings": Timings(
        step_ns=[5_000_000 + place for place in range(8)], warmup_ns=[9_000_000], clock="cuda_event"
    ),
    "diagnostics": [Diagnostic(Level.WARN, "cut", "rank0.json: ends early")],
}
"""Content of `run.json` that does not come from the import; fixed, for reproducible inputs."""
_CODES = (0, 1, 2, 3, 4, 5)
_JSON = ("--format", "json")
_BLAMES_ANALYSIS = "report it to the package"
"""Hint shown for a failing analysis; wrong if the run is damaged."""


@cache
def made_files(ranks: int) -> dict[str, bytes]:
    """Files of a small run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = folder / "traces"
        traces.mkdir()
        for rank in range(ranks):
            trace = write(training(rank=rank, world_size=ranks), traces / f"rank{rank}.json")
            os.utime(trace, (0, 0))
        (made,) = import_traces(Store(folder / "store"), [traces], label="fuzzed")
        path = Path(str(made.path))
        write_meta(path, replace(made.meta, **_KNOWN))
        return {
            str(file.relative_to(path)): file.read_bytes()
            for file in sorted(path.rglob("*"))
            if file.is_file()
        }


def make(random: Random) -> Case:
    """Make a run with one damaged file, and a command that reads it."""
    files = dict(made_files(random.choice((1, 1, 1, 2))))
    hit = FILE_NAME if random.random() < 0.35 else random.choice(sorted(files))
    files[hit] = _metadata(random, files[hit]) if hit == FILE_NAME else _table(random, files[hit])
    if random.random() < 0.05:
        del files[random.choice(sorted(files))]
    laid = {f"store/{RUN}/{name}": content for name, content in files.items()}
    return Case(files=laid, main="store", words=command(random))


def _metadata(random: Random, content: bytes) -> bytes:
    if random.random() < 0.7:
        document = change_document(random, json.loads(content), random.choice((1, 1, 2, 4)))
        content = to_json(document).encode("utf-8", "surrogatepass")
    return damage(random, content, _WORDS) if random.random() < 0.4 else content


def _table(random: Random, content: bytes) -> bytes:
    return damage(random, content, _WORDS) if random.random() < 0.4 else change_rows(random, content)


def read(case: Case, folder: Path) -> bool:
    """Run the command; returns whether it succeeded.

    Raises:
        DefectError: Exit code, output or error are not as documented.
    """
    store, output = case.write(folder), folder / "output"
    output.mkdir()
    words = [word.replace(HERE, str(output)) for word in case.words]
    stdout, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(stdout, "utf-8", write_through=True)  # some write bytes
    with redirect_stdout(out), redirect_stderr(err), _temporary_folders(folder):
        code = run([*words, "--store", str(store)])
    if code not in _CODES:
        raise DefectError(f"exit code {code}")
    _check_output(case.words, code, stdout.getvalue().decode())
    _check_errors(code, err.getvalue().splitlines())
    return code == 0


@contextmanager
def _temporary_folders(folder: Path) -> Iterator[None]:
    """Redirect the user's temporary and cache folders, which `gc` searches."""
    previous, cache_home = tempfile.tempdir, os.environ.get("XDG_CACHE_HOME")
    (folder / "tmp").mkdir()
    tempfile.tempdir = str(folder / "tmp")
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    try:
        yield
    finally:
        tempfile.tempdir = previous
        if cache_home is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = cache_home


def _check_output(words: tuple[str, ...], code: int, out: str) -> None:
    """Check that stdout is printable text, and JSON where promised."""
    if "\x1b" in out:
        raise DefectError("an escape sequence on stdout")
    if _BLAMES_ANALYSIS in out:
        raise DefectError(f"an analysis is blamed: {out[out.index(_BLAMES_ANALYSIS) - 300 :][:300]}")
    if code == 0 and (words[-2:] == _JSON or (words[0] == "export" and words[-1] == "-")):
        try:
            json.loads(out, parse_constant=_reject_constant)
        except ValueError as error:
            raise DefectError(f"invalid JSON on stdout: {error}") from error


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _check_errors(code: int, lines: list[str]) -> None:
    for line in lines:
        check_message(line)
        if _BLAMES_ANALYSIS in line:
            raise DefectError(f"an analysis is blamed: {line[:300]}")
    if code == 2 and not any(line.startswith("tracekit: ") for line in lines):
        raise DefectError(f"exit code 2 without an error: {lines[:3]}")
