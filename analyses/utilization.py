"""What the machine said of itself while the program ran: NVML, the process, and other samplers.

Samples are points; each stands for some time (see `_utilization.series`): one of a state (clock, power,
memory) from half-way since the sample before to half-way to the next, one that looks back (utilization, share
of CPU) since the sample before. Means and percentiles weigh by that time inside of the window, which is the
union of the profiled steps of all ranks, or the capture where none are marked; over the whole run by all of
it.

* NVML's GPU utilization is the share of its own sample period (1/6 s to 1 s, by product) in which any kernel
  of any process ran, however small. active = |K| over the window is what this program's trace shows. A device
  can be 100% utilized by one small kernel at a time, and steps shorter than the period share one value.
* power is that of the whole board (Ampere but GA100 and newer: mean of the past second). Energy = its
  integral = mean weighted by time × window, missing where samples stand for less than half of it.
* SM clock while it works: weighted by the time in which anything of the trace ran on the device.
* link = PCIe generation × lanes, the highest sampled while the device worked (one at rest falls back);
  throughput is NVML's, over 20 ms at each sample.

Sources: NVML API reference; Levental & Orlova, fig. 6 to 11; PCI Express Base Specification.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "utilization")  # doctest: +SKIP
    >>> result.tables["metrics"][["metric", "mean", "max", "unit"]]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Analysis, Result
from tracekit.nvml import SOURCE

from ._shared.common import NO_STEPS
from ._utilization import device_advice, host_advice, over_time, rules, specs, tables
from ._utilization.scene import Scene
from ._utilization.series import PROCESS

if TYPE_CHECKING:
    from tracekit.run import Run

NO_SAMPLES = (
    "neither NVML nor the process was sampled while this ran: `tracekit collect` samples the process and, "
    "where there is a driver, NVML; imported traces have no samples"
)
NO_NVML = "no samples of NVML: utilization, clocks, power and PCIe of the devices are unknown"
FEW = (
    "the steps were over before the second sample: values inside of them are of single samples; collect with "
    "more --steps"
)


def compute(run: Run) -> Result:
    """Summarize the samples of a run, beside what its devices did."""
    scene = Scene(run)
    made = {
        "devices": tables.devices(scene),
        "timeline": over_time.devices(scene),
        "per_step": tables.per_step(scene),
        "throttling": tables.throttling(scene),
        "pcie": tables.links(scene),
        "host": tables.host(scene),
        "host_timeline": over_time.host(scene),
        "metrics": tables.metrics(scene),
    }
    kept = {name: frame for name, frame in made.items() if len(frame) or name == "metrics"}
    return Result(kept, (*device_advice.findings(scene), *host_advice.findings(scene)), _notes(scene))


def _notes(scene: Scene) -> tuple[str, ...]:
    sampled = [one for one in scene.series if one.source in {SOURCE, PROCESS}]
    said = {
        NO_SAMPLES: not sampled,
        NO_NVML: bool(sampled and scene.worked) and not any(one.source == SOURCE for one in sampled),
        NO_STEPS: scene.window_ns > 0 and not len(scene.steps),
        FEW: bool(sampled) and all(int((one.within(scene.window) > 0).sum()) < 2 for one in sampled),
    }
    return tuple(note for note, true in said.items() if true)


ANALYSIS = Analysis(
    name="utilization",
    title="Utilization, clocks, power and host",
    question="How were the devices and the host used while it ran, and what held them back?",
    definition=(
        "Samples weighed by the time each stands for, inside of the profiled steps and over the whole run. "
        "NVML's utilization = share of its sample period in which any kernel of any process ran; active = "
        "|K| over the window, of this program's trace. Energy = integral of the board's power. Throttled = "
        "time of samples with a reason that throttles over sampled time. Link = PCIe generation × lanes "
        "under load. Cores = CPU time of the process and its children over wall time."
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
    rules=rules.RULES,
)
