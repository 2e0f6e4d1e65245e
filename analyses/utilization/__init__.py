"""Samples of NVML, of the process, and of other samplers during the run.

Each sample represents a period of time (see `series`). Means and percentiles are weighted by that time inside
the window: the union of the profiled steps of all ranks, or the capture if none are marked.

* NVML's GPU utilization has a sample period of 1/6 s to 1 s, by product. A device can be 100% utilized by one
  small kernel at a time, and steps shorter than the period share one value.
* power: on Ampere (except GA100) and newer, the mean of the past second.

Sources: NVML API reference; Levental & Orlova, fig. 6 to 11; PCI Express Base Specification.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "utilization")  # doctest: +SKIP
    >>> result.tables["metrics"][["metric", "mean", "max", "unit"]]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Analysis, Result
from tracekit.runs.nvml import SOURCE

from ..shared.common import NO_STEPS
from . import advice, specs, tables
from .series import PROCESS, Scene

if TYPE_CHECKING:
    from tracekit.runs.run import Run


NO_SAMPLES = (
    "no samples of NVML or of the process: `tracekit collect` samples the process and, if there is a driver, "
    "NVML; imported traces have no samples"
)
NO_NVML = "no NVML samples: utilization, clocks, power and PCIe of the devices are unknown"
FEW = "the steps ended before the second sample: their values are single samples; collect with more --steps"


def compute(run: Run) -> Result:
    """Summarize the samples of a run together with its device activity."""
    scene = Scene(run)
    tables_by_name = {
        "devices": tables.devices(scene),
        "timeline": tables.devices_over_time(scene),
        "per_step": tables.per_step(scene),
        "throttling": tables.throttling(scene),
        "pcie": tables.links(scene),
        "host": tables.host(scene),
        "host_timeline": tables.host_over_time(scene),
        "metrics": tables.metrics(scene),
    }
    nonempty = {name: frame for name, frame in tables_by_name.items() if len(frame) or name == "metrics"}
    return Result(nonempty, (*advice.device_findings(scene), *advice.host_findings(scene)), _notes(scene))


def _notes(scene: Scene) -> tuple[str, ...]:
    sampled = [one for one in scene.series if one.source in {SOURCE, PROCESS}]
    holds = {
        NO_SAMPLES: not sampled,
        NO_NVML: bool(sampled and scene.worked) and not any(one.source == SOURCE for one in sampled),
        NO_STEPS: scene.window_ns > 0 and not len(scene.steps),
        FEW: bool(sampled) and all(int((one.within(scene.window) > 0).sum()) < 2 for one in sampled),
    }
    return tuple(note for note, true in holds.items() if true)


ANALYSIS = Analysis(
    name="utilization",
    title="Utilization, clocks, power and host",
    question="How were the devices and the host utilized, and what limited them?",
    definition=(
        "Samples weighted by the time each represents, inside the profiled steps and over the whole run. "
        "NVML's utilization = share of its sample period in which any kernel of any process ran; active = "
        "|K| over the window, of this program's trace. Energy = mean power of the board × window. Throttled "
        "= time of samples with a throttle reason over sampled time. Link = PCIe generation × lanes under "
        "load. Cores = CPU time of the process and its children over wall time."
    ),
    tables=specs.SPECS,
    sources=(
        "NVML API reference",
        "Levental & Orlova, Fig. 6 to 11",
        "PCI Express Base Specification (rates per lane)",
    ),
    order=65,
    compute=compute,
    needs_profile=False,
    rules=advice.RULES,
)
