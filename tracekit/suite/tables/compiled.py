"""Eager against compiled, in the form of TorchBench's Fig. 3 and 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import GEOMEAN, MODES, RATIOS, Table, filled, geomean, ratio, why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.suite.model import Kind
    from tracekit.sweeping.table import Row

LEVEL = "compile"
NONE = "eager only: the workload has no level compile"
COLUMNS = (
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("eager_ns", "ns", "median step time, eager"),
    Column("compiled_ns", "ns", "median step time, compiled"),
    Column("speedup", "×", "eager over compiled step time"),
    Column("host_ratio", "×", "compiled over eager peak memory of the host"),
    Column("device_ratio", "×", "compiled over eager peak of the device's allocator"),
    Column("published_speedup", "×", "geometric mean of TorchBench's models"),
    Column("published_host_ratio", "×", "of TorchBench's models"),
    Column("published_device_ratio", "×", "of TorchBench's models"),
)
_RATIOS = ("speedup", "host_ratio", "device_ratio")


def table(kind: Kind) -> Table:
    """One row per workload and mode, and the geometric means of each mode."""
    eager = kind.eager()
    found = [_pair(row, kind.like(row, level=LEVEL)) for row in eager]
    return Table(
        name="compiled",
        title="Eager against compiled",
        definition="Above 1× the compiled program is faster, or takes more memory. Geometric means by mode.",
        source=f"{published.TORCHBENCH}, Fig. 3 and 4",
        columns=COLUMNS,
        rows=(*found, *(_mean(mode, found) for mode in MODES)),
    )


def _pair(eager: Row, other: Row | None) -> dict[str, Any]:
    known: dict[str, Any] = {
        "workload": eager.settings.workload,
        "mode": eager.settings.mode,
        "eager_ns": eager.step_ns,
    }
    if other is not None:
        known |= {
            "compiled_ns": other.step_ns,
            "speedup": ratio(eager.step_ns, other.step_ns),
            "host_ratio": ratio(other.host_peak_bytes, eager.host_peak_bytes),
            "device_ratio": ratio(other.allocated_peak_bytes, eager.allocated_peak_bytes),
        }
    said = NONE if other is None else why(other if not other.n else eager)
    reasons = {one.name: said for one in COLUMNS} | {"eager_ns": why(eager)}
    reasons |= {one.name: "see geomean" for one in COLUMNS if one.name.startswith("published")}
    if other is not None and other.n:
        reasons["device_ratio"] = why(other, device=True)
    return filled(known, COLUMNS, reasons)


def _mean(mode: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    own = [row for row in found if row["mode"] == mode]
    known: dict[str, Any] = {
        "workload": GEOMEAN,
        "mode": mode,
        "published_speedup": published.COMPILED_SPEEDUP[mode],
        "published_host_ratio": published.COMPILED_HOST[mode],
        "published_device_ratio": published.COMPILED_DEVICE[mode],
        **{name: geomean(row[name] for row in own) for name in _RATIOS},
    }
    reasons: dict[str, str] = {
        name: next((row["reasons"][name] for row in own if name in row["reasons"]), "no such mode")
        for name in _RATIOS
    }
    return filled(known, COLUMNS, reasons | dict.fromkeys(("eager_ns", "compiled_ns"), RATIOS))
