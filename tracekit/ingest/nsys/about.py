"""What an export says of its capture: when, on which GPUs, and what was lost.

Only the named fields of a few tables are read. `META_DATA_CAPTURE`, which holds every environment variable of
the program, is never opened; host and user names and paths stay behind.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.ingest.kineto.toplevel import DeviceProperties, TopLevel
from tracekit.ingest.limits import LATEST_NS, MOST_RANKS
from tracekit.ingest.nsys import vendor
from tracekit.ingest.nsys.rows import PROCESS_BITS
from tracekit.ingest.nsys.tables import whole, words
from tracekit.meta import Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.nsys.tables import Tables

_GPU = (
    "id",
    "deviceId",
    "name",
    "totalMemory",
    "smCount",
    "uuid",
    "computeMajor",
    "computeMinor",
    "maxWarpsPerSm",
    "threadsPerWarp",
    "maxRegistersPerSm",
    "maxShmemPerSm",
)
_ABOUT_CUDA = re.compile(r"(?i)cuda|cupti|gpu|\blost\b|dropped|not enough")
_MINOR = re.compile(r"(?i)unified memory cannot be traced")
_HOME = re.compile(r"(/(?:home|Users)|[A-Z]:\\Users)[/\\][^/\\\s]+")
_GPU_WORDS = ("name", "uuid")
_LONGEST = 300
_SIMULATED = "TRACEKIT_SIMULATED"
"""Said by what the project's own simulator writes."""


def top(tables: Tables) -> TopLevel:
    """The capture's start, its GPUs and driver."""
    started = tables.records("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
    system = _system(tables)
    return TopLevel(
        devices=gpus(tables),
        base_ns=_instant(started[0]["utcEpochNs"]) if started else 0,
        driver=system.get("NvDriverVersion"),
        tool=f"nsys {version(tables)}".strip(),
        simulated=any(row["name"] == _SIMULATED for row in tables.records("META_DATA_EXPORT", ("name",))),
    )


def _instant(value: Any) -> int:
    """Nanoseconds since 1970, or since the capture's start; 0 where nothing could be reckoned with them."""
    found = whole(value) or 0
    return found if 0 <= found < LATEST_NS else 0


def version(tables: Tables) -> str:
    """Version of the tool that wrote the export; empty when it does not say."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for row in tables.records(table, ("name", "value")):
            if row["name"] == "EXPORT_PRODUCT_VERSION":
                return words(row["value"])
    return ""


def _system(tables: Tables) -> dict[str, str]:
    """Facts about the machine that are no names of a person or host."""
    rows = tables.records("TARGET_INFO_SYSTEM_ENV", ("name", "value"))
    return {row["name"]: words(row["value"]) for row in rows if row["name"] == "NvDriverVersion"}


def gpus(tables: Tables) -> list[DeviceProperties]:
    """GPUs that can run CUDA; exports of old tell only their names."""
    told = "smCount" in tables.columns("TARGET_INFO_GPU")
    rows = tables.records("TARGET_INFO_GPU", _GPU)
    return [_gpu(row) for row in rows if whole(row["smCount"]) or not told]


def _gpu(row: dict[str, Any]) -> DeviceProperties:
    row = {name: value if name in _GPU_WORDS else whole(value) for name, value in row.items()}
    warps, warp = row["maxWarpsPerSm"], row["threadsPerWarp"]
    return DeviceProperties(
        index=row["id"] if row["id"] is not None else row["deviceId"] or 0,
        name=words(row["name"]),
        memory_bytes=row["totalMemory"] or None,
        major=row["computeMajor"],
        minor=row["computeMinor"],
        sm_count=row["smCount"] or None,
        max_threads_per_sm=warps * warp if warps and warp else None,
        registers_per_sm=row["maxRegistersPerSm"] or None,
        shared_bytes_per_sm=row["maxShmemPerSm"] or None,
        warp_size=warp or None,
        uuid=words(row["uuid"]) or None,
    )


def capture_end(tables: Tables) -> int:
    """When the capture ended, ns since its start; 0 when the export does not say."""
    rows = tables.records("ANALYSIS_DETAILS", ("duration",))
    return max((_instant(row["duration"]) for row in rows), default=0)


def mpi_ranks(tables: Tables) -> dict[int, int]:
    """Rank by process, where the export tells: `MPI_RANKS`."""
    rows = tables.records("MPI_RANKS", ("globalPid", "rank"))
    mask = (1 << PROCESS_BITS) - 1
    told = [(whole(row["globalPid"]), whole(row["rank"])) for row in rows]
    return {
        process >> PROCESS_BITS & mask: rank
        for process, rank in told
        if process is not None and rank is not None and 0 <= rank < MOST_RANKS
    }


def diagnostics(tables: Tables) -> list[Diagnostic]:
    """Warnings and errors of the tool; those that do not concern the GPU are information."""
    rows = tables.records("DIAGNOSTIC_EVENT", ("severity", "text", "timestamp"))
    found: dict[str, Level] = {}
    for row in sorted(rows, key=lambda row: (whole(row["timestamp"]) or 0, str(row["text"]))):
        if row["severity"] in (vendor.WARNING, vendor.ERROR):
            found.setdefault(_clean(str(row["text"])), _level(row["severity"], str(row["text"])))
    return [Diagnostic(level, "nsys_diagnostic", f"nsys: {text}") for text, level in found.items()]


def _level(severity: int, text: str) -> Level:
    if _MINOR.search(text) or not _ABOUT_CUDA.search(text):
        return Level.INFO
    return Level.ERROR if severity == vendor.ERROR else Level.WARN


def _clean(text: str) -> str:
    """One line, of bounded length, without the name of a person's folder."""
    line = " ".join(_HOME.sub("~", text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def reason(found: Sequence[Diagnostic], tables: Tables) -> str:
    """Why there may be no device activity, as far as the export tells."""
    if not tables.names() & {vendor.RUNTIME, vendor.KERNEL, vendor.MEMCPY}:
        return "the export has no CUDA tables: record with `nsys profile --trace=cuda,nvtx,osrt`"
    said = [one.message for one in found if one.level is not Level.INFO]
    if said:
        return "; ".join(said)
    return "nsys gives no reason; check permissions with `tracekit doctor`, and that the driver is supported"
