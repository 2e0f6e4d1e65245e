"""Resident blocks of a kernel per streaming multiprocessor (SM), from the limits of the GPU.

The minimum of four limits, as in NVIDIA's occupancy calculator (`cuda_occupancy.h`):

* threads: max_threads_per_sm over the threads of a block, rounded up to whole warps;
* registers: a warp takes registers × warp_size rounded up to 256, and the warps are spread over the 4 parts
  of an SM (2 where the compute capability is 6.0), each with its share of the registers;
* shared memory: shared_bytes_per_sm, the most an SM can set aside, over what a block takes: rounded up to
  128 bytes, and 1 KiB for the system, from compute capability 8.0 on; rounded up to 256 bytes before;
* blocks: the most an SM holds, by compute capability.

Sources: CUDA C++ Programming Guide, technical specifications per compute capability; `cuda_occupancy.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

MAX_BLOCKS: dict[str, int] = {
    "5.0": 32,
    "5.2": 32,
    "5.3": 32,
    "6.0": 32,
    "6.1": 32,
    "6.2": 32,
    "7.0": 32,
    "7.2": 32,
    "7.5": 16,
    "8.0": 32,
    "8.6": 16,
    "8.7": 16,
    "8.9": 24,
    "9.0": 32,
    "10.0": 32,
    "10.3": 32,
    "11.0": 24,
    "12.0": 24,
    "12.1": 24,
}
"""Maximum resident blocks per SM, by compute capability."""

_REGISTERS_OF_A_WARP = 256
_KEYS = ("sm_count", "max_threads_per_sm", "registers_per_sm", "shared_bytes_per_sm", "warp_size")


@dataclass(frozen=True)
class Sm:
    """Limits of the SMs of a device; None if unknown.

    Attributes:
        count: Number of SMs (compute units of an AMD GPU).
        threads: Maximum resident threads.
        registers: Registers.
        shared_bytes: Maximum shared memory.
        warp: Threads of a warp.
        capability: Compute capability.
    """

    count: int | None = None
    threads: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    warp: int | None = None
    capability: str = ""

    @property
    def known(self) -> bool:
        """Whether all limits are known, which is possible only for NVIDIA GPUs."""
        limits = (self.count, self.threads, self.registers, self.shared_bytes, self.warp)
        return all(limits) and self.capability in MAX_BLOCKS


def devices(run: Run) -> dict[int, Sm]:
    """Limits of the recorded GPUs, by device index."""
    found: dict[int, Sm] = {}
    for gpu in run.meta.environment.get("gpus") or []:
        count, threads, registers, shared, warp = (_positive(gpu.get(key)) for key in _KEYS)
        capability = str(gpu.get("compute_capability") or "")
        found[int(gpu.get("index", len(found)))] = Sm(count, threads, registers, shared, warp, capability)
    return found


def _positive(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and value > 0 else None


def resident_blocks(table: pd.DataFrame, gpus: dict[int, Sm]) -> pd.Series:
    """Blocks that fit on an SM at once; missing where a limit is unknown or a block would not fit at all.

    Args:
        table: Device, threads of a block as `block_threads`, registers, shared memory as `shared_bytes`.
        gpus: The devices.
    """
    result = pd.Series(pd.NA, index=table.index, dtype="Int64")
    for index, sm in gpus.items():
        rows = table[(table[C.DEVICE] == index) & table[C.REGISTERS].notna() & table["shared_bytes"].notna()]
        if sm.known and len(rows):
            blocks = _fitting(sm, rows)
            result[rows.index] = pd.array(np.where(blocks > 0, blocks, -1), dtype="Int64")
    return result.mask(result <= 0)


def _fitting(sm: Sm, rows: pd.DataFrame) -> Ints:
    total_threads, total_registers = sm.threads or 0, sm.registers or 0
    warp, shared_bytes = sm.warp or 1, sm.shared_bytes or 0
    warps = _up(rows["block_threads"].to_numpy(dtype=np.int64), warp) // warp
    warps = np.maximum(warps, 1)
    parts = 2 if sm.capability == "6.0" else 4
    of_warp = _up(rows[C.REGISTERS].to_numpy(dtype=np.int64) * warp, _REGISTERS_OF_A_WARP)
    by_registers = (total_registers // parts // np.maximum(of_warp, 1)) * parts // warps
    modern = int(sm.capability.split(".")[0]) >= 8
    shared = rows["shared_bytes"].to_numpy(dtype=np.int64)
    taken = _up(shared, 128) + 1024 if modern else _up(shared, 256)
    by_shared = shared_bytes // np.maximum(taken, 1)
    by_threads = total_threads // (warps * warp)
    most = np.minimum.reduce([by_threads, by_registers, by_shared])
    fitting: Ints = np.minimum(most, MAX_BLOCKS[sm.capability])
    return fitting


def _up(values: Ints, granule: int) -> Ints:
    rounded: Ints = -(-values // granule) * granule
    return rounded
