"""Runs in a store: `run.json` and Parquet files, asked for by the commands that read them."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.case import Case
from fuzz.judge import DefectError, said
from fuzz.mutate import damaged
from fuzz.odd import TEXTS
from fuzz.tree import changed, written
from samples.simulator import write
from samples.simulator.examples import training
from tracekit.cli.main import run
from tracekit.ingest import import_traces
from tracekit.meta import FILE_NAME
from tracekit.store import Store

if TYPE_CHECKING:
    from random import Random

_WORDS = (b"PAR1", b'"', b"{", b"null", b"1e400", b"\xff", b"\\ud800", b"\x1b[2J", b"9" * 30, b"[" * 2000)
_RUN = "20261121T000000Z-fuzzed-000000"
_CODES = (0, 1, 2, 3, 4, 5)
_COMMANDS = (
    ("runs",),
    ("runs", "--format", "json"),
    ("show",),
    ("show", "latest", "--format", "csv"),
    ("show", "latest", "--format", "json"),
    ("analyze", "latest", "steps"),
    ("analyze", "latest", "kernels", "--format", "json"),
    ("analyze", "latest", "gpu_breakdown"),
    ("analyze", "latest", "idle_gaps"),
    ("analyze", "latest", "h2d_copies"),
    ("analyze", "latest", "ops"),
    ("analyze", "latest", "memory"),
    ("analyze", "latest", "integrity"),
    ("findings",),
    ("diff", "latest", "latest"),
    ("noise", "latest"),
    ("rm", "latest", "--yes"),
)


@cache
def _files() -> dict[str, bytes]:
    """The files of a small run."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (made,) = import_traces(Store(folder / "store"), [write(training(), folder / "trace.json")])
        return {
            path.name: path.read_bytes() for path in sorted(Path(str(made.path)).iterdir()) if path.is_file()
        }


def make(random: Random) -> Case:
    """A run with something wrong about one of its files, and a command that reads it."""
    files = dict(_files())
    hit = FILE_NAME if random.random() < 0.5 else random.choice(sorted(files))
    files[hit] = _metadata(random, files[hit]) if hit == FILE_NAME else _table(random, files[hit])
    if random.random() < 0.05:
        del files[random.choice(sorted(files))]
    laid = {f"store/{_RUN}/{name}": content for name, content in files.items()}
    return Case(files=laid, main="store", words=random.choice(_COMMANDS))


def _metadata(random: Random, content: bytes) -> bytes:
    if random.random() < 0.7:
        document = changed(random, json.loads(content), random.choice((1, 1, 2, 4)))
        content = written(document).encode("utf-8", "surrogatepass")
    return damaged(random, content, _WORDS) if random.random() < 0.4 else content


def _table(random: Random, content: bytes) -> bytes:
    kind = random.random()
    if kind < 0.7:
        return damaged(random, content, _WORDS)
    table = pq.read_table(pa.BufferReader(content))
    at = random.randrange(table.num_columns)
    name = table.column_names[at]
    column = random.choice(
        (
            pa.nulls(len(table), table.schema.field(at).type),
            pa.array([random.choice(TEXTS)] * len(table)),
            pa.array([random.choice((-1, 0, 1 << 62, -(1 << 63)))] * len(table)),
            pa.array([[1]] * len(table)),
        )
    )
    table = table.drop_columns([name]) if kind > 0.95 else table.set_column(at, name, column)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def read(case: Case, folder: Path) -> bool:
    """Ask the command, as a user would; returns whether it succeeded.

    Raises:
        DefectError: Its exit code or its error is none that is documented.
    """
    store = case.lay(folder)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*case.words, "--store", str(store)])
    if code not in _CODES:
        raise DefectError(f"exit code {code}")
    lines = err.getvalue().splitlines()
    for line in lines:
        said(line)
    if code == 2 and not any(line.startswith("tracekit: ") for line in lines):
        raise DefectError(f"exit code 2 without an error: {lines[:3]}")
    if "\x1b" in out.getvalue():
        raise DefectError("an escape sequence on stdout")
    return code == 0
