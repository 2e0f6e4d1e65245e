"""Resident blocks of a kernel per streaming multiprocessor (SM), from the limits of the GPU.

The minimum of four limits, as in NVIDIA's occupancy calculator (`cuda_occupancy.h`):

* threads: max_threads_per_sm over the threads of a block, rounded up to whole warps;
* registers: a warp takes registers × warp_size rounded up to 256, and the warps are spread over the 4 parts
  of an SM (2 where the compute capability is 6.0), each with its share of the registers;
* shared memory: shared_bytes_per_sm, the most an SM can set aside, over what a block takes: rounded up to
  128 bytes, and 1 KiB for the system, from compute capability 8.0 on; rounded up to 256 bytes before;
* blocks: the most an SM holds, by compute capability.

Sources: CUDA C++ Programming Guide, technical specifications per compute capability; `cuda_occupancy.h`.

A kernel with relu, threshold or clamp_min in its name is one of:

* `fused`: a convolution or matrix product that can apply a ReLU to its output, as in
  `volta_scudnn_128x64_relu_interior_nn_v1`; its time is that of the convolution;
* `compiled`: a compiled kernel of several ops, including ReLU (`triton_poi_fused_relu_0`);
* `relu`: another kernel, launched by an op that is a ReLU (relu, threshold, clamp_min, their backward), or an
  element-wise one without a recorded op;
* `other`: any other, such as a leaky ReLU or another use of a threshold.

A kernel of another name that a ReLU op launched is a `relu` too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import family
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind, Phase

from ..shared.common import (
    Floats,
    Objects,
    alone_ns,
    ints,
    is_kind,
    map_categories,
    map_texts,
    medians,
    share,
    to_categorical,
)
from ..shared.groups import keys_of, number_by, sum_by_code
from ..shared.host_rows import NO_OP, host_texts
from ..shared.intervals_by_class import drop_overruns
from ..shared.tensor_shapes import Shape, numel, parse_shapes

_CAPABILITIES = {
    16: "7.5 8.6 8.7",
    24: "8.9 11.0 12.0 12.1",
    32: "5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 8.0 9.0 10.0 10.3",
}
MAX_BLOCKS = {capability: most for most, listed in _CAPABILITIES.items() for capability in listed.split()}
"""Maximum resident blocks per SM, by compute capability."""

_REGISTERS_OF_A_WARP = 256
_KEYS = ("sm_count", "max_threads_per_sm", "registers_per_sm", "shared_bytes_per_sm", "warp_size")


@dataclass(frozen=True)
class Sm:
    """Limits of the SMs of a device; None if unknown."""

    count: int | None = None  # number of SMs (compute units of an AMD GPU)
    threads: int | None = None  # maximum resident threads
    registers: int | None = None
    shared_bytes: int | None = None  # maximum shared memory
    warp: int | None = None  # threads of a warp
    capability: str = ""

    @property
    def known(self) -> bool:
        """Whether all limits are known, which is possible only for NVIDIA GPUs."""
        limits = (self.count, self.threads, self.registers, self.shared_bytes, self.warp)
        return all(limits) and self.capability in MAX_BLOCKS


def device_limits(run: Run) -> dict[int, Sm]:
    """Limits of the recorded GPUs, by device index."""
    gpus: dict[int, Sm] = {}
    for gpu in run.meta.environment.get("gpus") or []:
        count, threads, registers, shared, warp = (_positive(gpu.get(key)) for key in _KEYS)
        capability = str(gpu.get("compute_capability") or "")
        gpus[int(gpu.get("index", len(gpus)))] = Sm(count, threads, registers, shared, warp, capability)
    return gpus


def _positive(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and value > 0 else None


def resident_blocks(table: pd.DataFrame, gpus: dict[int, Sm]) -> pd.Series:
    """Blocks that fit on an SM at once; missing where a limit is unknown or a block would not fit at all.

    The table has device, threads of a block as `block_threads`, registers, and `shared_bytes`.
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
    used_bytes = _up(shared, 128) + 1024 if modern else _up(shared, 256)
    by_shared = shared_bytes // np.maximum(used_bytes, 1)
    by_threads = total_threads // (warps * warp)
    most = np.minimum.reduce([by_threads, by_registers, by_shared])
    fitting: Ints = np.minimum(most, MAX_BLOCKS[sm.capability])
    return fitting


def _up(values: Ints, granule: int) -> Ints:
    rounded: Ints = -(-values // granule) * granule
    return rounded


UNKNOWN = -1
OP, FAMILY, NUMEL, SHARED = "op", "family", "numel", "shared_bytes"
GRID = [C.GRID_X, C.GRID_Y, C.GRID_Z]
BLOCK = [C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z]
KEYS = [OP, FAMILY, *GRID, *BLOCK, NUMEL, C.REGISTERS, SHARED, C.RANK, C.DEVICE]
_RESOURCES = (C.REGISTERS, C.STATIC_SHARED_BYTES, C.DYNAMIC_SHARED_BYTES, C.OCCUPANCY_PCT)
_PLACED = (C.ROW_ID, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.STEP)


def read_kernels(run: Run) -> pd.DataFrame:
    """All kernels with op, family, shapes and elements; unknown integers are `UNKNOWN`."""
    where = is_kind(DeviceKind.KERNEL)
    recorded = (*_PLACED, C.NAME, C.OP_ROW, *GRID, *BLOCK, *_RESOURCES)
    frame = drop_overruns(run, run.table("device_intervals", columns=recorded, where=where))
    host = host_texts(run, frame[C.OP_ROW], {C.NAME: NO_OP, C.INPUT_SHAPES: "", C.PHASE: ""})
    static, dynamic = frame[C.STATIC_SHARED_BYTES], frame[C.DYNAMIC_SHARED_BYTES]
    counts = [*GRID, *BLOCK, C.REGISTERS, C.OP_ROW]
    work = busy(run, [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS])
    percent = frame[C.OCCUPANCY_PCT].to_numpy(dtype=np.float64, na_value=np.nan)
    shared = static.fillna(0).to_numpy(np.int64) + dynamic.fillna(0).to_numpy(np.int64)
    has_shared = (static.notna() | dynamic.notna()).to_numpy(bool)
    columns: dict[str, Any] = {
        **{name: frame[name] for name in _PLACED},
        "alone_ns": alone_ns(frame, frame),
        "exposed_ns": alone_ns(frame, work),
        **{name: frame[name].fillna(UNKNOWN).to_numpy(np.int64) for name in counts},
        SHARED: np.where(has_shared, shared, UNKNOWN),
        C.NAME: map_categories(frame[C.NAME], str),
        FAMILY: map_categories(frame[C.NAME], family),
        OP: host[C.NAME],
        "occupancy": np.where(percent > 0, percent / 100, np.nan),
        C.PHASE: host[C.PHASE],
        C.INPUT_SHAPES: host[C.INPUT_SHAPES],
        NUMEL: map_texts(pd.Series(host[C.INPUT_SHAPES]), _largest).astype(np.int64),
    }
    return pd.DataFrame(columns)


def shapes_of(text: str) -> list[Shape]:
    """Shapes of all input tensors with dimensions, including those in lists."""
    shapes: list[Shape] = []
    for entry in parse_shapes(text):
        shapes += entry if isinstance(entry, list) else [entry] if entry else []
    return shapes


def _largest(text: str) -> int:
    return max(map(numel, shapes_of(text)), default=UNKNOWN)


def group_kernels(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row per combination of keys: launches, times, occupancy, and the first row.

    `counted` are the launches in profiled steps and `counted_ns` their time. `alone_ns` and
    `counted_alone_ns` are the parts of the times in which no other kernel ran on the device, `exposed_ns` and
    `counted_exposed_ns` those in which nothing else did.
    """
    codes, first = number_by(rows, keys)
    size, duration = len(first), ints(rows, C.DUR_NS)
    in_steps, all_rows = rows[C.STEP].notna().to_numpy(), slice(None)
    sums = {
        f"{part}{name}_ns": sum_by_code(codes[which], size, values[which])
        for name, values in (
            ("total", duration),
            ("alone", ints(rows, "alone_ns")),
            ("exposed", ints(rows, "exposed_ns")),
        )
        for part, which in (("", all_rows), ("counted_", in_steps))
    }
    order = np.lexsort((ints(rows, C.ROW_ID), ints(rows, C.START_NS), codes))
    first_rows = order[np.diff(codes[order], prepend=-1) > 0]
    columns: dict[str, Any] = {
        "launches": np.bincount(codes, minlength=size),
        "counted_ns": sums.pop("counted_total_ns"),
        **sums,
        "counted": np.bincount(codes[in_steps], minlength=size),
        "median_ns": medians(codes, size, duration),
        "first_row": ints(rows, C.ROW_ID)[first_rows],
        "first_ns": ints(rows, C.START_NS)[first_rows],
        "occupancy": pd.Series(rows["occupancy"].to_numpy()).groupby(codes).median(),
        "share": share(sums["total_ns"], int(duration.sum())),
    }
    return keys_of(rows, keys, first).assign(**columns).astype({FAMILY: object})


def group_by_configuration(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Kernels by configuration, with quantities derived from device limits, sorted by time."""
    table = group_kernels(rows, KEYS)
    blocks, block_threads = (product(table, names) for names in (GRID, BLOCK))
    table = table.assign(**_known(table, [NUMEL, C.REGISTERS, SHARED]), block_threads=block_threads)
    gpus, device = device_limits(run), table[C.DEVICE]
    sms = device.map({index: sm.count for index, sm in gpus.items()}).astype("Int64")
    resident = resident_blocks(table, gpus)
    waves = _ratio(blocks, sms * resident)
    derived = table.assign(
        blocks=blocks,
        threads=blocks * block_threads,
        sms=sms,
        resident_blocks=resident,
        max_threads=device.map({index: sm.threads for index, sm in gpus.items()}),
        blocks_per_sm=_ratio(blocks, sms),
        waves=waves,
        tail_share=1 - waves / np.maximum(np.ceil(waves), 1),
        threads_per_element=_ratio(blocks * block_threads, table[NUMEL]),
    )
    return _longest_first(derived)


def _known(table: pd.DataFrame, columns: Sequence[str]) -> dict[str, pd.arrays.IntegerArray]:
    """Columns of integers, missing where they are `UNKNOWN`."""
    values = {name: ints(table, name) for name in columns}
    return {name: pd.arrays.IntegerArray(column, column == UNKNOWN) for name, column in values.items()}


def _longest_first(table: pd.DataFrame) -> pd.DataFrame:
    """Sort the result of `group_kernels`, which is in the order of its keys, by time."""
    order = np.argsort(-ints(table, "total_ns"), kind="stable")
    return table.iloc[order].reset_index(drop=True)


def product(table: pd.DataFrame, columns: Sequence[str]) -> Ints:
    """Product of columns of integers."""
    factors: Ints = np.prod([ints(table, name) for name in columns], axis=0)
    return factors


def _ratio(part: Ints, total: pd.Series) -> Floats:
    """Ratio of part to whole, NaN if the whole is unknown."""
    return share(part, total.to_numpy(dtype=np.float64, na_value=np.nan))


RELU, FUSED, COMPILED, OTHER = "relu", "fused", "compiled", "other"
RELU_NAME = re.compile(r"(?i)relu|threshold|clamp_min")
_LIBRARY = re.compile(r"(?i)(?:cudnn|cutlass|xmma|gemm|convolve|scudnn|winograd|fprop|dgrad|wgrad).*relu")
_COMPILED = re.compile(r"(?i)triton")
_OP = re.compile(r"^(?:aten::|prims::)?(?:relu6?_?|threshold_?|clamp_min_?|threshold_backward)$")
_NODE = re.compile(r"(?:^|\W)(?:Relu|Threshold|ClampMin)\w*Backward\d*$")
_VARIANT = re.compile(r"(?i)leaky|prelu|rrelu|celu|gelu|selu")
_ELEMENTWISE = re.compile(r"(?i)elementwise|clamp_scalar|\brelu_(?:forward_|backward_)?kernel")
_BACKWARD = re.compile(r"(?i)backward")
BY_NAME, BY_OP, BY_BOTH = "name", "op", "name and op"
ACTIVATION_KEYS = ["kind", "direction", OP, FAMILY, *GRID, *BLOCK, "told_by", C.RANK, C.DEVICE]


def is_op(name: str) -> bool:
    """Whether an op is a ReLU, forward or backward.

    Example:
        >>> is_op("aten::threshold_backward"), is_op("aten::leaky_relu"), is_op("aten::conv2d")
        (True, False, False)
    """
    return bool(_OP.search(name) or _NODE.search(name))


def kind_of(kernel: str, op: str) -> str:
    """Kind of a kernel with a ReLU in its name or op; empty for every other kernel.

    Example:
        >>> kind_of("volta_scudnn_128x64_relu_interior_nn_v1", "aten::cudnn_convolution")
        'fused'
        >>> kind_of("void at::native::(anonymous namespace)::launch_clamp_scalar(int)", "aten::clamp_min")
        'relu'
    """
    named, launched = bool(RELU_NAME.search(kernel)), is_op(op)
    if not named and not launched:
        return ""
    if _LIBRARY.search(kernel):
        return FUSED
    if _COMPILED.search(kernel):
        return COMPILED
    without_op = op == NO_OP and _ELEMENTWISE.search(kernel) and not _VARIANT.search(kernel)
    return RELU if launched or without_op else OTHER


def relu_table(rows: pd.DataFrame) -> pd.DataFrame:
    """ReLU-named kernels and kernels of ReLU ops, by kind, direction, op, family and configuration."""
    codes, first = number_by(rows, [C.NAME, OP])
    pairs = keys_of(rows, [C.NAME, OP], first).itertuples(index=False, name=None)
    kinds = np.array([kind_of(name, op) for name, op in pairs], object)
    is_chosen = (kinds != "")[codes]
    chosen: pd.DataFrame = rows[is_chosen]
    if chosen.empty:
        return chosen
    kind = to_categorical(kinds.tolist(), codes[is_chosen])
    chosen = chosen.assign(kind=kind, told_by=_identified_by(chosen), direction=_directions(chosen))
    relu = group_kernels(chosen, ACTIVATION_KEYS)
    shares = relu["total_ns"] / max(int(rows[C.DUR_NS].sum()), 1)
    return _longest_first(relu.assign(share=shares, **_known(relu, [*GRID, *BLOCK])))


def _identified_by(rows: pd.DataFrame) -> Objects:
    by_name = map_texts(rows[C.NAME], lambda name: bool(RELU_NAME.search(name))).to_numpy(bool)
    by_op = map_texts(rows[OP], is_op).to_numpy(bool)
    return np.where(by_name & by_op, BY_BOTH, np.where(by_name, BY_NAME, BY_OP)).astype(object)


def _directions(rows: pd.DataFrame) -> Objects:
    """Direction by the op's name or its phase; empty if the op is unknown."""
    backward = map_texts(rows[OP], lambda name: bool(_BACKWARD.search(name))).to_numpy(bool)
    backward |= (rows[C.PHASE] == Phase.BACKWARD).to_numpy()
    has_op = (rows[OP] != NO_OP).to_numpy()
    return np.where(~has_op, "", np.where(backward, "backward", "forward")).astype(object)
