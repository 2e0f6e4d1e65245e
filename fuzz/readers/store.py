"""Stored runs with damaged files, read by commands."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tempfile
import zlib
from collections import defaultdict
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.case import Case
from fuzz.checks import DefectError, check_message
from fuzz.commands import APART, HERE, command
from fuzz.damage import damage
from fuzz.json_document import change_document, to_json
from fuzz.parquet import change_rows
from samples.simulator import write
from samples.simulator.examples import training
from tracekit import registry
from tracekit.analysis import analyze
from tracekit.cli.main import run
from tracekit.errors import TracekitError
from tracekit.export import query_process
from tracekit.ingest.importer import import_traces
from tracekit.render.query import read_texts
from tracekit.runs.meta import FILE_NAME, Diagnostic, Git, Level, Timings
from tracekit.runs.meta import write as write_meta
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.tables import ENDING, sha256_of_parts
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
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
ALTERED = "altered"
"""Word of a case whose digests are those of an altered table: only `verify` can notice."""
IF_READ = "if-read:"
"""Begin of the word of a case whose command is run only if this table, or the metadata alone, can be read."""


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


@cache
def analyses_by_table() -> dict[str, list[str]]:
    """Analyses that read each table of a small run."""
    found = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        Case(files=made_files(1), main="").write(Path(folder) / RUN)
        for name in registry.names(registry.ANALYSES):
            made = Run(Path(folder) / RUN)
            analyze(made, name)
            for table in made._datasets:
                found[table].append(name)
    return dict(found)


def make(random: Random) -> Case:
    """Make a run with one damaged file, and a command that reads the file, most often."""
    files = dict(made_files(random.choice((1, 1, 1, 2))))
    hit = FILE_NAME if random.random() < 0.35 else random.choice(sorted(files))
    table = hit.partition("/")[0].removesuffix(ENDING)
    altered: tuple[str, ...] = ()
    if table not in TABLES:
        table, files[FILE_NAME] = "", _metadata(random, files[FILE_NAME])
    elif random.random() < 0.4:
        files[hit] = damage(random, files[hit], _WORDS)
    else:
        files[hit] = change_rows(random, files[hit])
        if random.random() < 0.5:
            files[FILE_NAME], altered = _with_digests(files, table, hit), (ALTERED,)
    if random.random() < 0.05:
        del files[random.choice(sorted(files))]
    laid = {f"store/{RUN}/{name}": content for name, content in files.items()}
    words = command(random, table, analyses_by_table().get(table, ()))
    condition = (f"{IF_READ}{table}",) if random.random() < 0.9 else ()
    return Case(files=laid, main="store", words=(*words, *altered, *condition))


def _with_digests(files: dict[str, bytes], table: str, changed: str) -> bytes:
    """Return `run.json` with rows, bytes and digests of a changed file of a table."""
    content, document = files[changed], json.loads(files[FILE_NAME])
    entry, name = document["tables"][table], Path(changed).name
    (length,) = struct.unpack("<I", content[-8:-4])
    entry["footers"][name] = zlib.crc32(content[-8 - length :])
    described = {
        "rows": pq.read_metadata(pa.BufferReader(content)).num_rows,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    parts = entry["parts"]
    if parts:
        next(part for part in parts if part["name"] == name).update(described, footer=entry["footers"][name])
        described = {key: sum(part[key] for part in parts) for key in ("rows", "bytes")}
        described["sha256"] = sha256_of_parts([part["sha256"] for part in parts])
    entry.update(described)
    return json.dumps(document).encode()


def _metadata(random: Random, content: bytes) -> bytes:
    if random.random() < 0.7:
        document = change_document(random, json.loads(content), random.choice((1, 1, 2, 4)))
        content = to_json(document).encode("utf-8", "surrogatepass")
    return damage(random, content, _WORDS) if random.random() < 0.4 else content


def read(case: Case, folder: Path) -> bool:
    """Read what is damaged, and run the command; returns whether it succeeded.

    Nine of ten commands are run only if that can be read: the others would print the same error.

    Raises:
        DefectError: Exit code, output or error are not as documented.
    """
    store, output = case.write(folder), folder / "output"
    output.mkdir()
    words = tuple(word for word in case.words if word != ALTERED and not word.startswith(IF_READ))
    tables = [word.removeprefix(IF_READ) for word in case.words if word.startswith(IF_READ)]
    if tables and not _can_be_read(store / RUN, tables[0]):
        return False
    filled = [word.replace(HERE, str(output)) for word in words]
    stdout, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(stdout, "utf-8", write_through=True)  # some write bytes
    with redirect_stdout(out), redirect_stderr(err), _temporary_folders(folder), _queries(words):
        code = run([*filled, "--store", str(store)])
    if code not in _CODES:
        raise DefectError(f"exit code {code}")
    shown, lines = stdout.getvalue().decode(), err.getvalue().splitlines()
    _check_output(words, code, shown)
    _check_errors(code, lines)
    if ALTERED not in case.words:
        _check_blame([shown, *lines])
    return code == 0


def _can_be_read(folder: Path, table: str) -> bool:
    """Whether the metadata of a run, and the table if one is named, can be read."""
    stored = Run(folder)
    try:
        return stored.meta is not None and (not table or stored.table(table) is not None)
    except TracekitError as error:
        check_message(str(error))
        return False


def _queries(words: Sequence[str]) -> AbstractContextManager[object]:
    """Answer queries in this process, unless they are to have one of their own."""
    return nullcontext() if APART[0] in words else patch.object(query_process, "run_query", read_texts)


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
    if code == 2 and not any(line.startswith("tracekit: ") for line in lines):
        raise DefectError(f"exit code 2 without an error: {lines[:3]}")


def _check_blame(texts: Sequence[str]) -> None:
    for text in texts:
        if _BLAMES_ANALYSIS in text:
            place = text.index(_BLAMES_ANALYSIS)
            raise DefectError(f"an analysis is blamed: {text[max(0, place - 300) :][:300]}")
