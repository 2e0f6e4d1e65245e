"""The same workload on two devices: what became faster by how much, beside what their peaks allow.

Of one run the devices it used are listed with their peaks, as `roofline` knows them. `compare` takes the
same work on two kinds of device; what makes a device (name, SMs, compute capability, driver, CUDA, cuDNN)
and the host may differ, everything else that decides must be equal.

* ratios: step time, device time and memory peaks of both runs, and the peaks of both devices.
* gain of an op = device time on the base over that on the head, Σ over the compared steps. Ops are matched by
  `tracekit.diff`, so kernels may have other names, as cuBLAS's and hipBLASLt's have.
* allowed = the ratio of the devices' memory bandwidths; for matrix products, convolutions and attention the
  lower one of it and of the ratio of the peaks at the precision of the op's first floating-point input, FP32
  counting as TF32 too. An op that makes as much of one device as of the other gains that at least. reached =
  gain over allowed. Peaks say nothing of short kernels, of launch costs, or of copies to and from the host.
* Notes say where devices mostly wait for the host, and where the head reaches much more than is allowed: the
  base makes less of its device there, so the gain is not the head's merit.

Source: TorchBench (Hao et al., 2023), section 3.3, Fig. 5 and Table 3.

Example:
    >>> import tracekit
    >>> a100, mi210 = tracekit.open("a100"), tracekit.open("mi210")  # doctest: +SKIP
    >>> tracekit.compare(a100, mi210, "device_compare").tables["ops"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.run import busy
from tracekit.schema import C

from ._device_compare import gains
from ._roofline import devices
from ._shared.common import DEVICE, RANK, absent_device_note

if TYPE_CHECKING:
    from tracekit.run import Run

_PEAKS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")


def compute(run: Run) -> Result:
    """List the devices that a run used, with their peaks."""
    device = busy(run, [C.RANK, C.DEVICE, C.DUR_NS])
    if device.empty:
        return Result(notes=(absent_device_note(run),))
    grouped = device.groupby([C.RANK, C.DEVICE], sort=True)
    table = grouped[C.DUR_NS].agg(intervals="size", sum_ns="sum").reset_index()
    names = devices.names(run, [int(one) for one in table[C.DEVICE]])
    told = [names.get(int(one), "") for one in table[C.DEVICE]]
    known = [devices.known(name) for name in told]
    table["device_name"] = told
    for precision in _PEAKS:
        peaks = [one.peak(precision) if one else None for one in known]
        table[precision] = pd.Series(peaks, index=table.index, dtype="float64")
    table["gb_per_s"] = pd.Series([one.gb_per_s if one else None for one in known], dtype="float64")
    notes = [gains.UNLISTED.format(name or "an unnamed device") for name in sorted(_unlisted(told))]
    return Result({"devices": table[[column.name for column in _DEVICES]]}, notes=tuple(notes))


def _unlisted(names: list[str]) -> set[str]:
    return {name for name in names if devices.known(name) is None}


_DEVICES = (
    RANK,
    DEVICE,
    Column("device_name", "", "its name as recorded; empty where it was not"),
    Column("intervals", "count", "kernels, copies, memsets and opaque graphs on it"),
    Column("sum_ns", "ns", "Σ of their durations"),
    *(
        Column(name, "TFLOP/s", f"dense {name} peak of matrix products; missing if unknown")
        for name in _PEAKS
    ),
    Column("gb_per_s", "GB/s", "peak memory bandwidth; missing where unknown"),
)

ANALYSIS = Analysis(
    name="device_compare",
    title="Comparison of devices",
    question="How much faster is another device at the same work, and which ops gain less than peaks allow?",
    definition=(
        "gain = device time of an op on the base over that on the head; allowed = ratio of the memory "
        "bandwidths, for matrix products, convolutions and attention the lower one of it and of the ratio of "
        "the peaks at the op's precision (FP32 also as TF32); reached = gain over allowed. Of one run: its "
        "devices with their dense peaks."
    ),
    tables=(TableSpec("devices", "Devices and their peaks", _DEVICES),),
    sources=("TorchBench 3.3, Fig. 5 and Table 3",),
    order=91,
    compute=compute,
    rules=(gains.GAIN,),
    compare=gains.compare,
    comparison=gains.TABLES,
)
