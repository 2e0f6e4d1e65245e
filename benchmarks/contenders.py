"""Commands that are measured on an input: tracekit, similar tools, bare parsers."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.runner import Contender
from tracekit import registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.inputs import Export, ImportedRun, SplitTrace, Trace
    from benchmarks.peers import Environment


PROGRAMS = Path(__file__).with_name("programs")
IMPORT = "tracekit import"
BREAKDOWN = "tracekit analyze gpu_breakdown"
FINDINGS = "tracekit findings"
_FINDINGS = "imports, then computes every analysis, and ranks what they found"
_TRACEKIT = "from tracekit.cli.main import main\nif __name__ == '__main__': main()"


def tracekit(name: str, does: str, *arguments: object, against: str = "") -> Contender:
    """A tracekit command with an empty store.

    Args:
        name: Name in tables.
        does: What a run of it does.
        arguments: Its arguments.
        against: Name of the contender it is compared with.
    """
    command = [sys.executable, "-c", _TRACEKIT, *map(str, arguments)]
    return Contender(
        name=name,
        does=does,
        against=against,
        command=lambda scratch: ["env", f"TRACEKIT_STORE={scratch / 'store'}", *command],
    )


def program(
    name: str, does: str, script: str, *arguments: object, against: str, peer: Environment | None = None
) -> Contender:
    """A script of `benchmarks.programs`, run by a peer's Python.

    Args:
        name: Name in tables.
        does: What a run of it does.
        script: File name.
        arguments: Its arguments.
        against: Name of the contender it is compared with.
        peer: Environment that runs it; this Python by default.
    """
    python = str(peer.python) if peer else sys.executable
    command = [python, "-P", str(PROGRAMS / script), *map(str, arguments)]
    return Contender(
        name=name,
        does=does,
        against=against,
        command=lambda _: command,
        environment=home_variable(peer),
        missing=peer.missing if peer else "",
    )


def home_variable(peer: Environment | None) -> dict[str, str]:
    """HOME of a peer's processes, if the peer has its own home folder."""
    return {"HOME": str(peer.home)} if peer and peer.home else {}


def trace_readers(trace: Trace, peers: Mapping[str, Environment], split: SplitTrace) -> Sequence[Contender]:
    """Contenders that can read a trace.

    Args:
        trace: The trace.
        peers: Environment of each peer.
        split: Forms of the same trace for parsers that need them.
    """
    found = [*_tracekit(trace), *_hta(trace, peers), *_parsers(trace, peers, split)]
    return found + (_tables(trace, peers, split) if trace.form == "plain" else [])


def _tracekit(trace: Trace) -> list[Contender]:
    does = "decodes, checks, links and writes every table to Parquet"
    found = [tracekit(IMPORT, does, "import", trace.path)]
    if trace.base.on_device:
        does = "imports, then computes the breakdown of device time"
        analyze = ("analyze", trace.path, "gpu_breakdown", "--format", "json")
        found.append(tracekit(BREAKDOWN, does, *analyze))
    return [*found, tracekit(FINDINGS, _FINDINGS, "findings", trace.path, "--format", "json")]


def _hta(trace: Trace, peers: Mapping[str, Environment]) -> list[Contender]:
    peer = peers["HolisticTraceAnalysis"]
    if trace.base.on_device:
        folder, script = trace.path.parent, "load_hta.py"
        breakdown = "`TraceAnalysis(trace_dir)`, then `get_temporal_breakdown`"
        every = "`TraceAnalysis(trace_dir)`, then its analyses of one rank that need no further choice"
        return [
            program(
                "HTA load and breakdown", breakdown, script, folder, "breakdown", against=BREAKDOWN, peer=peer
            ),
            program("HTA load and analyses", every, script, folder, "every", against=FINDINGS, peer=peer),
        ]
    does = "`TraceAnalysis(trace_dir)`; its breakdown needs a device"
    return [program("HTA load", does, "load_hta.py", trace.path.parent, against=IMPORT, peer=peer)]


def _parsers(trace: Trace, peers: Mapping[str, Environment], split: SplitTrace) -> list[Contender]:
    objects = "parses the whole text into Python objects"
    simd = peers["pysimdjson"]
    chunks = "parses chunks of complete events, as tracekit splits them, on one core; creates no values"
    once = "parses the whole text at once; creates no values"
    return [
        program("json.loads", objects, "parse_json.py", "json", trace.path, against=IMPORT),
        program(
            "orjson.loads",
            objects,
            "parse_json.py",
            "orjson",
            trace.path,
            against=IMPORT,
            peer=peers["orjson"],
        ),
        program(
            "msgspec.json.decode",
            objects,
            "parse_json.py",
            "msgspec",
            trace.path,
            against=IMPORT,
            peer=peers["msgspec"],
        ),
        program("simdjson, whole", once, "parse_json.py", "simdjson", trace.path, against=IMPORT, peer=simd),
        program(
            "simdjson, in chunks",
            chunks,
            "parse_json.py",
            "simdjson-chunks",
            trace.path,
            split.bounds,
            against=IMPORT,
            peer=simd,
        ),
    ]


def _tables(trace: Trace, peers: Mapping[str, Environment], split: SplitTrace) -> list[Contender]:
    rewritten = ", rewritten beforehand to one event per line,"
    forms = {"read_json": ("", trace.path), "read_ndjson": (rewritten, split.lines)}
    return [
        program(
            f"{name} {reader}",
            f"reads the text{words} into a table in memory, on all cores",
            "parse_frames.py",
            name,
            path,
            against=IMPORT,
            peer=peers[name],
        )
        for name in ("polars", "duckdb")
        for reader, (words, path) in forms.items()
    ]


def export_readers(export: Export, peers: Mapping[str, Environment]) -> Sequence[Contender]:
    """Contenders that can read an export.

    Args:
        export: The export.
        peers: Environment of each peer.
    """
    rows = "fetches every row of the event tables with Python's sqlite3"
    frames = "reads the event tables into data frames and resolves string ids"
    script = "read_export.py"
    return [
        tracekit(IMPORT, "reads, checks, links and writes every table to Parquet", "import", export.path),
        tracekit(FINDINGS, _FINDINGS, "findings", export.path, "--format", "json"),
        _nsys_ai(export, peers["nsys-ai"]),
        program("sqlite3 + pandas", frames, script, "pandas", export.path, against=IMPORT),
        program("sqlite3", rows, script, "rows", export.path, against=IMPORT),
    ]


def _nsys_ai(export: Export, peer: Environment) -> Contender:
    """Writes its cache next to the file, so it gets a hard link in the scratch folder."""

    def link(scratch: Path) -> None:
        os.link(export.path, scratch / "export.sqlite")

    return Contender(
        name="nsys-ai warm",
        does="writes its Parquet cache and its map from NVTX ranges to kernels",
        against=IMPORT,
        command=lambda scratch: [
            str(peer.python),
            "-P",
            "-m",
            "nsys_ai",
            "warm",
            str(scratch / "export.sqlite"),
        ],
        environment=home_variable(peer),
        prepare=link,
        missing=peer.missing,
    )


OPENING, EVERY = "(open the run)", "(all)"
_SPECIAL = {OPENING: ("-", "starts Python and opens the run"), EVERY: ("*", "as `tracekit findings`")}


def run_analyses(run: ImportedRun, names: Sequence[str] = ()) -> Sequence[Contender]:
    """Opening the run, every analysis alone, and all together.

    Args:
        run: The run.
        names: Select analyses whose name contains one of these; empty for all.
    """
    found = []
    every = registry.names(registry.ANALYSES)
    chosen = [name for name in every if not names or any(word in name for word in names)]
    for name in (OPENING, *chosen, EVERY):
        analysis, does = _SPECIAL.get(name, (name, "opens the run and computes the analysis"))
        arguments = (run.store, run.run, analysis)
        found.append(program(name, does, "analyze_run.py", *arguments, against=""))
    return found


def dashboard_clients(run: ImportedRun, names: Sequence[str] = ()) -> Sequence[Contender]:
    """A client that requests every page, one that draws the timeline, and a browser.

    Args:
        run: The run.
        names: Select contenders whose name contains one of these; empty for all.
    """
    missing = "" if find_spec("dash") else "not installed: the extra `dashboard`"
    found = [
        _pages(run, missing),
        replace(
            program("timeline", "builds, reads and draws", "draw_timeline.py", run.store, against=""),
            missing=missing,
        ),
        _browser(run, missing),
    ]
    return [one for one in found if not names or any(name in one.name for name in names)]


def _pages(run: ImportedRun, missing: str) -> Contender:
    def copy(scratch: Path) -> None:
        shutil.copytree(run.store, scratch / "store")

    script = str(PROGRAMS / "ask_dashboard.py")
    return Contender(
        name="every page",
        does="starts the server and requests every block of every page twice",
        command=lambda scratch: [sys.executable, "-P", script, str(scratch / "store"), run.run],
        prepare=copy,
        missing=missing,
    )


def _browser(run: ImportedRun, missing: str) -> Contender:
    if not missing and not find_spec("playwright"):
        missing = "not installed: playwright"
    if not missing and not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        missing = "not installed: Chromium"
    size = ["--intervals", str(run.events), "--rounds", "60"]
    return Contender(
        name="in Chromium",
        does="serves a synthetic run of that many intervals; a browser zooms in its timeline",
        command=lambda _: [sys.executable, "-m", "benchmarks.dashboard", "--json", *size],
        missing=missing,
    )
