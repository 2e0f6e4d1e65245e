"""Samples of NVML, of the process, and of other samplers during the run.

Each sample represents a period of time (see `series`).

* NVML's GPU utilization has a sample period of 1/6 s to 1 s, by product. A device can be 100% utilized by one
  small kernel at a time, and steps shorter than the period share one value.
* power: on Ampere (except GA100) and newer, the mean of the past second.

Sources: NVML API reference; Levental & Orlova, fig. 6 to 11; PCI Express Base Specification.

Example:
    >>> tracekit.analyze(run, "utilization").tables["metrics"]  # doctest: +SKIP
"""

from __future__ import annotations

from tracekit.analysis import Analysis, Result
from tracekit.runs.nvml import SOURCE
from tracekit.runs.run import Run

from ..shared.common import NO_STEPS
from .findings import RULES, device_findings, host_findings
from .series import PROCESS, Scene, scene_of
from .tables import SPECS, build_tables

NO_SAMPLES = (
    "no samples of NVML or of the process: `tracekit collect` samples the process and, if there is a driver, "
    "NVML; imported traces have no samples"
)
NO_NVML = "no NVML samples: utilization, clocks, power and PCIe of the devices are unknown"
FEW = "the steps ended before the second sample: their values are single samples; collect with more --steps"


def compute(run: Run) -> Result:
    """Summarize the samples of a run together with its device activity."""
    scene, other_ranks = scene_of(run)
    findings = (*device_findings(scene.inside), *host_findings(scene))
    return Result(build_tables(scene), findings, (*other_ranks, *_notes(scene)))


def _notes(scene: Scene) -> tuple[str, ...]:
    samples = [series for series in scene.series if series.source in {SOURCE, PROCESS}]
    has_nvml = any(series.source == SOURCE for series in samples)
    notes = {
        NO_SAMPLES: not samples,
        NO_NVML: bool(samples and scene.worked) and not has_nvml,
        NO_STEPS: scene.window_ns > 0 and not len(scene.steps),
        FEW: bool(samples) and all(int((series.within(scene.window) > 0).sum()) < 2 for series in samples),
    }
    return tuple(note for note, applies in notes.items() if applies)


ANALYSIS = Analysis(
    name="utilization",
    title="Utilization, power and host",
    question="How were the devices and the host utilized, and what limited them?",
    definition=(
        "Samples weighted by the time each represents, inside the profiled steps and over the whole run. "
        "NVML's utilization = share of its sample period in which any kernel of any process ran; active = "
        "|K| over the window, of this program's trace. Energy = mean power of the board × window. Throttled "
        "= time of samples with a throttle reason over sampled time. Link = PCIe generation × lanes under "
        "load. Cores = CPU time of the process and its children over wall time. Findings use only samples "
        "taken inside the steps, not those around them that stand for a part of a step."
    ),
    tables=SPECS,
    sources=(
        "NVML API reference",
        "Levental & Orlova, Fig. 6 to 11",
        "PCI Express Base Specification (rates per lane)",
    ),
    order=65,
    reads=("device_intervals", "counters"),
    compute=compute,
    needs_profile=False,
    rules=RULES,
)
