"""Who reads a Kineto trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.commands import program, tracekit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.inputs.pieces import Pieces
    from benchmarks.inputs.traces import Trace
    from benchmarks.peers import Environment
    from benchmarks.runner import Contender

IMPORT = "tracekit import"
BREAKDOWN = "tracekit analyze gpu_breakdown"
_PARSE = "parse_json.py"
_FRAMES = "parse_frames.py"


def contenders(trace: Trace, peers: Mapping[str, Environment], cut: Pieces) -> Sequence[Contender]:
    """Everybody who can read a trace in its form.

    Args:
        trace: What they read.
        peers: Where each peer is installed.
        cut: Forms of the same trace for parsers that want another.
    """
    found = [*_tracekit(trace), *_hta(trace, peers), *_parsers(trace, peers, cut)]
    return found + (_tables(trace, peers, cut) if trace.form == "plain" else [])


def _tracekit(trace: Trace) -> list[Contender]:
    does = "decodes, checks, links and writes every table to Parquet"
    found = [tracekit(IMPORT, does, "import", trace.path)]
    if trace.base.on_device:
        does = "imports, then breaks the device's time down"
        analyze = ("analyze", trace.path, "gpu_breakdown", "--format", "json")
        found.append(tracekit(BREAKDOWN, does, *analyze))
    return found


def _hta(trace: Trace, peers: Mapping[str, Environment]) -> list[Contender]:
    peer = peers["HolisticTraceAnalysis"]
    if trace.base.on_device:
        does = "`TraceAnalysis(trace_dir)`, then `get_temporal_breakdown`"
        arguments = (trace.path.parent, "breakdown")
        return [
            program("HTA load and breakdown", does, "load_hta.py", *arguments, against=BREAKDOWN, peer=peer)
        ]
    does = "`TraceAnalysis(trace_dir)`; its breakdown needs a device"
    return [program("HTA load", does, "load_hta.py", trace.path.parent, against=IMPORT, peer=peer)]


def _parsers(trace: Trace, peers: Mapping[str, Environment], cut: Pieces) -> list[Contender]:
    whole = "parses the whole text into Python objects"
    simd = peers["pysimdjson"]
    pieces = "parses whole events in the pieces in which tracekit cuts them, on one core; gives no values"
    once = "parses the whole text at once; gives no values"
    return [
        program("json.loads", whole, _PARSE, "json", trace.path, against=IMPORT),
        program("orjson.loads", whole, _PARSE, "orjson", trace.path, against=IMPORT, peer=peers["orjson"]),
        program(
            "msgspec.json.decode", whole, _PARSE, "msgspec", trace.path, against=IMPORT, peer=peers["msgspec"]
        ),
        program("simdjson, whole", once, _PARSE, "simdjson", trace.path, against=IMPORT, peer=simd),
        program(
            "simdjson, in pieces",
            pieces,
            _PARSE,
            "simdjson-chunks",
            trace.path,
            cut.borders,
            against=IMPORT,
            peer=simd,
        ),
    ]


def _tables(trace: Trace, peers: Mapping[str, Environment], cut: Pieces) -> list[Contender]:
    rewritten = ", rewritten beforehand to one event a line,"
    forms = {"read_json": ("", trace.path), "read_ndjson": (rewritten, cut.lines)}
    return [
        program(
            f"{name} {reader}",
            f"reads the text{words} into a table in memory, on all cores",
            _FRAMES,
            name,
            path,
            against=IMPORT,
            peer=peers[name],
        )
        for name in ("polars", "duckdb")
        for reader, (words, path) in forms.items()
    ]
