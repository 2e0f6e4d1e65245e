"""Eager compared with compiled and other levels, after TorchBench, Fig. 3 and 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import (
    FEW,
    GEOMEAN,
    MODES,
    RATIOS,
    Table,
    apart,
    filled,
    geomean,
    left_out,
    ratio,
    why,
)
from tracekit.sweeping import table as sweep
from tracekit.workloads.base import COMPILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.suite.model import Kind
    from tracekit.sweeping.table import Row

COLUMNS = (
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("level", "", "level compared with eager; compiled by Inductor unless stated otherwise"),
    Column("eager_ns", "ns", "median step time, eager"),
    Column("compiled_ns", "ns", "median step time, at this level"),
    Column("speedup", "×", "eager over compiled step time"),
    Column(
        "apart", "", "whether all runs of one side are faster than all of the other; if not, it may be noise"
    ),
    Column("host_ratio", "×", "compiled over eager peak memory of the host"),
    Column("device_ratio", "×", "compiled over eager peak of the device's allocator"),
    *(column for column in sweep.COLUMNS if column.name in sweep.COMPILE_COLUMNS),
    Column("published_speedup", "×", "geometric mean over TorchBench's models"),
    Column("published_host_ratio", "×", "same for TorchBench's models"),
    Column("published_device_ratio", "×", "same for TorchBench's models"),
)
_RATIOS = ("speedup", "host_ratio", "device_ratio")


def table(kind: Kind) -> Table:
    """Return a row per workload, mode and level, and geometric means per mode and level."""
    ways = kind.ways()
    found = [_pair(kind, row, level) for level in ways for row in kind.eager()]
    return Table(
        name="compiled",
        title="Eager vs. compiled",
        definition=(
            "Above 1×, the compiled program is faster, or uses more memory. Step times exclude compilation; "
            "the host's peak memory includes it. Geometric means are per mode and level."
        ),
        source=f"{published.TORCHBENCH}, Fig. 3 and 4",
        columns=COLUMNS,
        rows=(*found, *(_mean(mode, level, found) for level in ways for mode in MODES)),
    )


def _pair(kind: Kind, eager: Row, level: str) -> dict[str, Any]:
    other = kind.at(eager, level)
    known: dict[str, Any] = {
        "workload": eager.settings.workload,
        "mode": eager.settings.mode,
        "level": level,
        "eager_ns": eager.step_ns,
    }
    if other is not None:
        known |= {
            "compiled_ns": other.step_ns,
            "speedup": ratio(eager.step_ns, other.step_ns),
            "apart": apart(eager, other),
            **{name: getattr(other, name) for name in sweep.COMPILE_COLUMNS},
            "host_ratio": ratio(other.host_peak_bytes, eager.host_peak_bytes),
            "device_ratio": ratio(other.allocated_peak_bytes, eager.allocated_peak_bytes),
        }
    return filled(known, COLUMNS, _reasons(kind, eager, other, level))


def _reasons(kind: Kind, eager: Row, other: Row | None, level: str) -> dict[str, str]:
    if other is None:
        measured = any(kind.at(row, level) for row in kind.eager())
        said = left_out(eager.settings.workload, level, measured=measured)
    else:
        said = why(other if not other.n else eager)
    reasons = {one.name: said for one in COLUMNS} | {"eager_ns": why(eager)}
    reasons |= {one.name: "see geomean" for one in COLUMNS if one.name.startswith("published")}
    if other is not None and other.n:
        reasons |= {"device_ratio": why(other, device=True), "apart": FEW}
        reasons |= dict.fromkeys(sweep.COMPILE_COLUMNS, "available only for torch.compile")
    return reasons


def _mean(mode: str, level: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    own = [row for row in found if (row["mode"], row["level"]) == (mode, level)]
    known: dict[str, Any] = {"workload": GEOMEAN, "mode": mode, "level": level}
    known |= {name: geomean(row[name] for row in own) for name in _RATIOS}
    if level == COMPILE:
        known |= {
            "published_speedup": published.COMPILED_SPEEDUP[mode],
            "published_host_ratio": published.COMPILED_HOST[mode],
            "published_device_ratio": published.COMPILED_DEVICE[mode],
        }
    reasons: dict[str, str] = {
        name: next((row["reasons"][name] for row in own if name in row["reasons"]), "no such mode")
        for name in _RATIOS
    }
    reasons |= dict.fromkeys(("eager_ns", "compiled_ns", "apart", *sweep.COMPILE_COLUMNS), RATIOS)
    published_too = [one.name for one in COLUMNS if one.name.startswith("published")]
    return filled(known, COLUMNS, reasons | dict.fromkeys(published_too, "published for Inductor only"))
