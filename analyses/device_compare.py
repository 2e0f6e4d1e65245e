"""Comparison of the same workload on two devices: gain of each op, against the ratio of the devices' peaks.

For one run, the devices it used are listed with their peaks, as known to `roofline`. `compare` takes the same
work on two kinds of device; device properties (name, SMs, compute capability, driver, CUDA, cuDNN) and the
host may differ, all other comparability fields must be equal.

* Ops are matched by `tracekit.diff`, so kernel names may differ (cuBLAS and hipBLASLt). Times are summed over
  the compared steps.
* An op that uses both devices equally well gains at least `allowed`. Peaks do not apply to short kernels,
  launch costs, or copies to and from the host.
* Notes report devices that mostly wait for the host, and ops that gain much more than allowed: there the base
  uses its device poorly, so the gain is not due to the head's device.

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
    """List the devices of a run with their peaks."""
    device = busy(run, [C.RANK, C.DEVICE, C.DUR_NS])
    if device.empty:
        return Result(notes=(absent_device_note(run),))
    grouped = device.groupby([C.RANK, C.DEVICE], sort=True)
    table = grouped[C.DUR_NS].agg(intervals="size", sum_ns="sum").reset_index()
    names = devices.names(run, [int(one) for one in table[C.DEVICE]])
    device_names = [names.get(int(one), "") for one in table[C.DEVICE]]
    known = [devices.known(name) for name in device_names]
    table["device_name"] = device_names
    for precision in _PEAKS:
        peaks = [one.peak(precision) if one else None for one in known]
        table[precision] = pd.Series(peaks, index=table.index, dtype="float64")
    table["gb_per_s"] = pd.Series([one.gb_per_s if one else None for one in known], dtype="float64")
    notes = [gains.UNLISTED.format(name or "an unnamed device") for name in sorted(_unlisted(device_names))]
    return Result({"devices": table[[column.name for column in _DEVICES]]}, notes=tuple(notes))


def _unlisted(names: list[str]) -> set[str]:
    return {name for name in names if devices.known(name) is None}


_DEVICES = (
    RANK,
    DEVICE,
    Column("device_name", "", "recorded name of the device; empty if not recorded"),
    Column("intervals", "count", "kernels, copies, memsets and opaque graphs on it"),
    Column("sum_ns", "ns", "Σ of their durations"),
    *(
        Column(name, "TFLOP/s", f"dense {name} peak of matrix products; missing if unknown")
        for name in _PEAKS
    ),
    Column("gb_per_s", "GB/s", "peak memory bandwidth; missing if unknown"),
)

ANALYSIS = Analysis(
    name="device_compare",
    title="Comparison of devices",
    question="How much faster is another device for the same work, and which ops gain less than peaks allow?",
    definition=(
        "gain = device time of an op on the base over that on the head; allowed = ratio of the memory "
        "bandwidths (head over base); for matrix products, convolutions and attention the minimum of that "
        "and the ratio of the compute peaks at the precision of the op's first floating-point input (FP32 "
        "also as TF32); reached = gain over allowed. For one run: its devices with their dense peaks."
    ),
    tables=(TableSpec("devices", "Devices and their peaks", _DEVICES),),
    sources=("TorchBench 3.3, Fig. 5 and Table 3",),
    order=91,
    compute=compute,
    rules=(gains.GAIN,),
    compare=gains.compare,
    comparison=gains.TABLES,
)
