"""Queries of NVML and their metrics and units.

Quantities of NVML that cannot be computed from kernels:

* `gpu_utilization_pct`: percent of NVML's past sample period (1/6 s to 1 s, by product) during which one or
  more kernels ran, of any size. `memory_utilization_pct`: in which device memory was read or written.
* `power_w`: of the whole board; on Ampere (but GA100) and newer the mean over the past second.
* `energy_j`: of the whole board since the driver was loaded.
* `pcie_rx_gb_per_s`, `pcie_tx_gb_per_s`: received and sent by the GPU over 20 ms, in which the call waits;
  NVML's KB are taken as 1000 bytes.
* `throttle_reasons`: bits of the reasons that limit the clocks.

Source: NVML API reference, device queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

SOURCE: Final = "nvml"


class M:
    """Names of metrics."""

    GPU_UTILIZATION: Final = "gpu_utilization_pct"
    MEMORY_UTILIZATION: Final = "memory_utilization_pct"
    MEMORY_USED: Final = "memory_used_bytes"
    MEMORY_TOTAL: Final = "memory_total_bytes"
    SM_CLOCK: Final = "sm_clock_mhz"
    SM_CLOCK_MAX: Final = "sm_clock_max_mhz"
    MEMORY_CLOCK: Final = "memory_clock_mhz"
    MEMORY_CLOCK_MAX: Final = "memory_clock_max_mhz"
    POWER: Final = "power_w"
    POWER_LIMIT: Final = "power_limit_w"
    ENERGY: Final = "energy_j"
    TEMPERATURE: Final = "temperature_c"
    THROTTLE: Final = "throttle_reasons"
    PCIE_GENERATION: Final = "pcie_generation"
    PCIE_GENERATION_MAX: Final = "pcie_generation_max"
    PCIE_WIDTH: Final = "pcie_width"
    PCIE_WIDTH_MAX: Final = "pcie_width_max"
    PCIE_RX: Final = "pcie_rx_gb_per_s"
    PCIE_TX: Final = "pcie_tx_gb_per_s"
    PROCESS_MEMORY: Final = "process_memory_bytes"
    OTHERS: Final = "other_processes"


@dataclass(frozen=True, kw_only=True)
class Query:
    """A call to NVML and its metrics."""

    metrics: tuple[tuple[str, str], ...]  # name and unit of each value `read` returns
    # function of the library (the module `pynvml`) and a device handle
    read: Callable[[Any, Any], tuple[float, ...]]
    once: bool = False  # whether the result is constant while a program runs
    slow: bool = False  # whether the call takes tens of milliseconds

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics without their units."""
        return tuple(name for name, _ in self.metrics)


def _query(metric: str, unit: str, function: str, *constants: str, scale: float = 1.0, **when: bool) -> Query:
    """Return a query of one function, with constants of the library as further arguments."""

    def read(library: Any, handle: Any) -> tuple[float, ...]:
        arguments = (getattr(library, name) for name in constants)
        return (float(getattr(library, function)(handle, *arguments)) * scale,)

    return Query(metrics=((metric, unit),), read=read, **when)


def _query_fields(function: str, *fields: tuple[str, str, str], once: bool = False) -> Query:
    """Return a query of a function that fills a structure: metric, unit and name of each field."""

    def read(library: Any, handle: Any) -> tuple[float, ...]:
        structure = getattr(library, function)(handle)
        return tuple(float(getattr(structure, name)) for *_, name in fields)

    return Query(metrics=tuple((metric, unit) for metric, unit, _ in fields), read=read, once=once)


def _read_reasons(library: Any, handle: Any) -> tuple[float, ...]:
    """Return the throttle reasons; drivers and bindings before 2023 have only the older name."""
    try:
        return (float(library.nvmlDeviceGetCurrentClocksEventReasons(handle)),)
    except (AttributeError, library.NVMLError_FunctionNotFound):
        return (float(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),)


QUERIES: Final = (
    _query_fields(
        "nvmlDeviceGetUtilizationRates",
        (M.GPU_UTILIZATION, "%", "gpu"),
        (M.MEMORY_UTILIZATION, "%", "memory"),
    ),
    _query_fields("nvmlDeviceGetMemoryInfo", (M.MEMORY_USED, "bytes", "used")),
    _query_fields("nvmlDeviceGetMemoryInfo", (M.MEMORY_TOTAL, "bytes", "total"), once=True),
    _query(M.SM_CLOCK, "MHz", "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    _query(M.SM_CLOCK_MAX, "MHz", "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM", once=True),
    _query(M.MEMORY_CLOCK, "MHz", "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    _query(M.MEMORY_CLOCK_MAX, "MHz", "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_MEM", once=True),
    _query(M.POWER, "W", "nvmlDeviceGetPowerUsage", scale=1e-3),
    _query(M.POWER_LIMIT, "W", "nvmlDeviceGetEnforcedPowerLimit", scale=1e-3, once=True),
    _query(M.ENERGY, "J", "nvmlDeviceGetTotalEnergyConsumption", scale=1e-3),
    _query(M.TEMPERATURE, "°C", "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    Query(metrics=((M.THROTTLE, "bits"),), read=_read_reasons),
    _query(M.PCIE_GENERATION, "", "nvmlDeviceGetCurrPcieLinkGeneration"),
    _query(M.PCIE_GENERATION_MAX, "", "nvmlDeviceGetMaxPcieLinkGeneration", once=True),
    _query(M.PCIE_WIDTH, "lanes", "nvmlDeviceGetCurrPcieLinkWidth"),
    _query(M.PCIE_WIDTH_MAX, "lanes", "nvmlDeviceGetMaxPcieLinkWidth", once=True),
    *(
        _query(metric, "GB/s", "nvmlDeviceGetPcieThroughput", f"NVML_PCIE_UTIL_{sent}", scale=1e-6, slow=True)
        for metric, sent in ((M.PCIE_RX, "RX_BYTES"), (M.PCIE_TX, "TX_BYTES"))
    ),
)
"""Queries of every device; `processes` depends on the querying process."""


def processes(library: Any, handle: Any) -> dict[int, float | None]:
    """Return the bytes used by each process with a compute context, by process id; None if unknown."""
    return {
        int(process.pid): None if process.usedGpuMemory is None else float(process.usedGpuMemory)
        for process in library.nvmlDeviceGetComputeRunningProcesses(handle)
    }


def unsupported_metrics(library: Any, handle: Any) -> tuple[str, ...]:
    """Return the metrics that a device does not support, in the order of the queries.

    Virtual GPUs, MIG instances and older or smaller boards support only some.
    """
    return tuple(name for query in QUERIES if not _answers(library, handle, query) for name in query.names)


def _answers(library: Any, handle: Any, query: Query) -> bool:
    try:
        query.read(library, handle)
    except (library.NVMLError, AttributeError):  # missing in an older binding
        return False
    return True
