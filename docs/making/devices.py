"""Generated page: the listed devices with their peaks and sources, and how to give others."""

from __future__ import annotations

from typing import Any

from tracekit.render.cells import escape_prose, grid
from tracekit.runs.devices import PRECISIONS, entries, unit_counts

PATH = "peaks.md"
_HEAD = """\
# Peaks of devices

`roofline` and `device_compare` compare rates with the peaks of the device: dense peaks (without 2:4
sparsity) in TFLOP/s, TOP/s for int8, and memory bandwidth in GB/s, from vendors' data sheets. A device is
found by the name and the number of SMs or compute units that its driver reports. A MIG partition, a variant
with another number of units, or a device that is not in the list has no peaks: there are rates, but no
utilization and no MFU.

## Give peaks

`--peaks` of `tracekit analyze`, `findings` and `report` takes the name of a listed device, or a JSON file:

```sh
tracekit analyze latest roofline --peaks "H100 SXM"
tracekit findings latest --peaks mine.json
```

```json title="mine.json"
{"name": "My GPU", "gb_per_s": 2000, "tflops": {"fp32": 51, "tf32": 378, "fp16": 756, "bf16": 756}}
```

Precisions are {precisions}; those left out are unknown. `source` may say where the numbers are from.

In the dashboard, choose a listed device under *Peaks* on the pages of these analyses; the choice is part of
the address. Results name the peaks that were given.

```pycon
>>> import tracekit
>>> from tracekit.runs.devices import parse_device
>>> run = tracekit.open("./trace.json.gz").with_peaks(parse_device("L4"))
>>> result = tracekit.analyze(run, "device_compare")
>>> result.notes[0]
'peaks are those of L4 (NVIDIA L4 data sheet, 2023), as given, ...
```

## Listed devices

Missing numbers are unknown. `fp32_matrix` and `fp64_matrix` are peaks of matrix units that differ from
those of the vector units.

{table}
"""


def pages() -> dict[str, str]:
    """Return the page: Markdown by path."""
    columns = ("device", "units", "GB/s", *PRECISIONS, "source")
    table = grid(columns, [_row(entry) for entry in entries()])
    precisions = ", ".join(f"`{one}`" for one in PRECISIONS)
    text = _HEAD.replace("{precisions}", precisions).replace("{table}", table)
    return {PATH: text}


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    units = " or ".join(map(str, unit_counts(entry)))
    peaks = (f"{entry['tflops'][one]:g}" if one in entry["tflops"] else "" for one in PRECISIONS)
    return entry["name"], units, f"{entry['gb_per_s']:g}", *peaks, escape_prose(entry["source"])
