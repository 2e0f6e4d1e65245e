"""Schema of the normalized run: tables, columns and their meaning.

Times are int64 nanoseconds relative to the run's ``t0_unix_ns``; a name ends in its unit. A column marked
nullable is null where the source does not say; zero never means "unknown".
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA_VERSION: Final = 1
VERSION_KEY: Final = b"tracekit.schema_version"
SEPARATOR: Final = ", "
"""Between the values of a text that lists several, such as `source_lines`."""
HOST_DEVICE: Final = -1
"""The value of `device` for memory of the host."""


class C:
    """Column names, each spelled once."""

    ADDRESS: Final = "address"
    ASLEEP_NS: Final = "asleep_ns"
    BLOCK_X: Final = "block_x"
    BLOCK_Y: Final = "block_y"
    BLOCK_Z: Final = "block_z"
    BYTES: Final = "bytes"
    CAPTURED_CALL: Final = "captured_call"
    CAPTURED_MODULE: Final = "captured_module"
    CAPTURED_OP: Final = "captured_op"
    CAPTURED_PATH: Final = "captured_path"
    CAPTURED_SHAPES: Final = "captured_shapes"
    COLLECTIVE: Final = "collective"
    COLLECTIVE_SEQUENCE: Final = "collective_sequence"
    CONTEXT: Final = "context"
    CONTEXT_REQUESTS: Final = "context_requests"
    CONTEXT_TOKENS: Final = "context_tokens"
    COPY_KIND: Final = "copy_kind"
    CORRELATION_ID: Final = "correlation_id"
    DEPTH: Final = "depth"
    DEVICE: Final = "device"
    DST_DEVICE: Final = "dst_device"
    DST_MEMORY: Final = "dst_memory"
    DST_RANK: Final = "dst_rank"
    DTYPE: Final = "dtype"
    DUR_NS: Final = "dur_ns"
    DYNAMIC_SHARED_BYTES: Final = "dynamic_shared_bytes"
    ELEMENTS_IN: Final = "elements_in"
    ELEMENTS_OUT: Final = "elements_out"
    EXTERNAL_ID: Final = "external_id"
    FLOPS: Final = "flops"
    FUSED_OPS: Final = "fused_ops"
    FWD_TID: Final = "fwd_tid"
    GENERATION_REQUESTS: Final = "generation_requests"
    GENERATION_TOKENS: Final = "generation_tokens"
    GRAPH: Final = "graph"
    GRAPH_ID: Final = "graph_id"
    GRAPH_NODE_ID: Final = "graph_node_id"
    GRID_X: Final = "grid_x"
    GRID_Y: Final = "grid_y"
    GRID_Z: Final = "grid_z"
    GROUP_DESCRIPTION: Final = "group_description"
    GROUP_NAME: Final = "group_name"
    GROUP_RANKS: Final = "group_ranks"
    GROUP_SIZE: Final = "group_size"
    IDLE_CAUSE: Final = "idle_cause"
    IDLE_OP_ROW: Final = "idle_op_row"
    INPUT_DTYPES: Final = "input_dtypes"
    INPUT_SHAPES: Final = "input_shapes"
    KERNEL_BACKEND: Final = "kernel_backend"
    KERNEL_FILE: Final = "kernel_file"
    KERNEL_HASH: Final = "kernel_hash"
    KERNEL_KWARGS: Final = "kernel_kwargs"
    KIND: Final = "kind"
    LAUNCH_ROW: Final = "launch_row"
    LOCK_WAIT_NS: Final = "lock_wait_ns"
    METRIC: Final = "metric"
    MODULE: Final = "module"
    NAME: Final = "name"
    OCCUPANCY_PCT: Final = "occupancy_pct"
    OP_ROW: Final = "op_row"
    PARENT_ROW: Final = "parent_row"
    PHASE: Final = "phase"
    PID: Final = "pid"
    POSITION: Final = "position"
    PROFILED: Final = "profiled"
    RAN_NS: Final = "ran_ns"
    RANK: Final = "rank"
    REGISTERS: Final = "registers"
    REQUESTS: Final = "requests"
    ROW_ID: Final = "row_id"
    SEQUENCE: Final = "sequence"
    SINCE_NS: Final = "since_ns"
    SOURCE: Final = "source"
    SOURCE_HASH: Final = "source_hash"
    SOURCE_LINES: Final = "source_lines"
    SPLIT_IN: Final = "split_in"
    SPLIT_OUT: Final = "split_out"
    SRC_DEVICE: Final = "src_device"
    SRC_MEMORY: Final = "src_memory"
    SRC_RANK: Final = "src_rank"
    STACK: Final = "stack"
    START_NS: Final = "start_ns"
    STATIC_SHARED_BYTES: Final = "static_shared_bytes"
    STEP: Final = "step"
    STREAM: Final = "stream"
    TID: Final = "tid"
    TORCH_COMPILE_ID: Final = "torch_compile_id"
    TOTAL_ALLOCATED: Final = "total_allocated"
    TOTAL_RESERVED: Final = "total_reserved"
    T_NS: Final = "t_ns"
    UNFINISHED: Final = "unfinished"
    UNIT: Final = "unit"
    VALUE: Final = "value"


class DeviceKind(StrEnum):
    """`kind` of a device interval."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    GRAPH = "graph"
    SYNC = "sync"
    IDLE = "idle"


BUSY_KINDS: Final = (DeviceKind.KERNEL, DeviceKind.MEMCPY, DeviceKind.MEMSET, DeviceKind.GRAPH)
"""Kinds that occupy a device; `sync` rows are waits and `idle` rows their complement."""


class HostKind(StrEnum):
    """`kind` of a host interval; `sync` is a runtime call that waits for the device."""

    OP = "op"
    RUNTIME = "runtime"
    ANNOTATION = "annotation"
    PYTHON = "python"
    OVERHEAD = "overhead"
    SYNC = "sync"


class Phase(StrEnum):
    """`phase` of a host interval within a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    ZERO_GRAD = "zero_grad"
    DATALOAD = "dataload"


class ServingPhase(StrEnum):
    """`phase` of a step of an inference server."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class CopyKind(StrEnum):
    """`copy_kind` of a memcpy: source and destination."""

    H2D = "H2D"
    D2H = "D2H"
    D2D = "D2D"
    P2P = "P2P"
    H2H = "H2H"
    UNKNOWN = "unknown"


class Memory(StrEnum):
    """`src_memory` and `dst_memory` of a memcpy."""

    PAGEABLE = "pageable"
    PINNED = "pinned"
    DEVICE = "device"
    UNIFIED = "unified"
    ARRAY = "array"
    UNKNOWN = "unknown"


class ValueType(StrEnum):
    """Data type of a column; Arrow is imported only when its type is requested."""

    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    BOOL = "bool"
    STRING = "string"
    TEXT = "text"
    """Strings that many rows share: each is stored once."""

    @property
    @cache  # queries over all runs ask for the types of a hundred thousand columns
    def arrow(self) -> pa.DataType:
        """The Arrow type.

        Example:
            >>> ValueType.TEXT.arrow
            DictionaryType(dictionary<values=string, indices=int32, ordered=0>)
        """
        import pyarrow as pa

        return pa.dictionary(pa.int32(), pa.string()) if self is ValueType.TEXT else pa.type_for_alias(self)


class Column(msgspec.Struct, frozen=True):
    """Column of a table.

    Attributes:
        name: Its name.
        values: What it holds.
        meaning: What a value says.
        nullable: Whether it may be null.
        between: The least and the largest value that there can be; None where its type is all that limits it.
    """

    name: str
    values: ValueType
    meaning: str
    nullable: bool = False
    between: tuple[int, int] | None = None

    @property
    def type(self) -> pa.DataType:
        """Its Arrow type."""
        return self.values.arrow

    @property
    def is_text(self) -> bool:
        """Whether it holds text that rows share."""
        return self.values is ValueType.TEXT

    @property
    def is_integer(self) -> bool:
        """Whether it holds integers."""
        return self.values in (ValueType.INT32, ValueType.INT64)

    @property
    def field(self) -> pa.Field:
        """The Arrow field of this column."""
        import pyarrow as pa

        return pa.field(self.name, self.type, nullable=self.nullable)

    def fits(self, stored: pa.Field | None) -> bool:
        """Whether a file's column, or its absence, gives values of this one."""
        return self.nullable if stored is None else bool(stored.type == self.type)


class Table(msgspec.Struct, frozen=True):
    """Table of a run: meaning of a row, and columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    @cache  # noqa: B019 (there are few tables; queries over all runs ask for the schema of every file)
    def arrow(self) -> pa.Schema:
        """The Arrow schema, with the schema version in its metadata.

        Example:
            >>> STEPS.arrow.names[:5]
            ['rank', 'step', 'name', 'start_ns', 'dur_ns']
        """
        import pyarrow as pa

        fields = [column.field for column in self.columns]
        return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})

    @property
    def time(self) -> str | None:
        """Column of times by which rows are sorted; None if rows have no time.

        Example:
            >>> STEPS.time, COUNTERS.time, COMPILED_KERNELS.time
            ('start_ns', 't_ns', None)
        """
        names = {column.name for column in self.columns}
        return next((name for name in (C.START_NS, C.T_NS) if name in names), None)

    def unfit(self, stored: pa.Schema) -> list[str]:
        """Columns that a file does not hold as they are here; one that may be null here may be absent there.

        Example:
            >>> import pyarrow as pa
            >>> STEPS.unfit(STEPS.arrow.remove(0).set(0, pa.field("step", pa.string())))
            ['rank', 'step']
        """
        unsure = () if stored.equals(self.arrow) else self.columns
        held = {field.name: field for field in stored} if unsure else {}
        return [column.name for column in unsure if not column.fits(held.get(column.name))]


def _maybe(name: str, values: ValueType, meaning: str) -> Column:
    return Column(name, values, meaning, nullable=True)


_INT32, _INT64, _FLOAT64, _TEXT = ValueType.INT32, ValueType.INT64, ValueType.FLOAT64, ValueType.TEXT
_FARTHEST = (3 << 61) - 1
_LENGTH = (0, _FARTHEST)
_INSTANT = (1 - (1 << 61), _FARTHEST)
"""Range of times that imports write; 64 bits hold the difference of any two."""
_RANK = Column(C.RANK, _INT32, "rank of the process in its job; 0 if alone", between=(0, (1 << 20) - 1))
_STEP = _maybe(C.STEP, _INT64, "number of the profiled step it belongs to")
_START = Column(C.START_NS, _INT64, "start, ns since the run's t0", between=_INSTANT)
_DUR = Column(C.DUR_NS, _INT64, "duration, ns", between=_LENGTH)
_ROW_ID = Column(C.ROW_ID, _INT64, "identifies the row within its table")
_UNFINISHED = _maybe(C.UNFINISHED, _INT64, "1 if no end was recorded: its duration is unknown; else missing")
_CORRELATION = _maybe(C.CORRELATION_ID, _INT64, "joins a runtime call to what it launched")

_COLLECTIVE = (
    _maybe(C.COLLECTIVE, _TEXT, "name of the collective that the op issues, or the kernel is of"),
    _maybe(C.COLLECTIVE_SEQUENCE, _INT64, "number of the collective within its process group"),
    _maybe(C.DTYPE, _TEXT, "dtype of the collective's elements"),
    _maybe(C.ELEMENTS_IN, _INT64, "elements that each rank passes to the collective"),
    _maybe(C.ELEMENTS_OUT, _INT64, "elements that each rank receives from the collective"),
    _maybe(C.GROUP_NAME, _TEXT, "name of the collective's process group"),
    _maybe(C.GROUP_DESCRIPTION, _TEXT, "description of the process group"),
    _maybe(C.GROUP_RANKS, _TEXT, "ranks of the process group, as recorded"),
    _maybe(C.GROUP_SIZE, _INT64, "number of ranks of the process group"),
    _maybe(C.SPLIT_IN, _TEXT, "rows that an all-to-all sends to each rank, as recorded; empty if equal"),
    _maybe(C.SPLIT_OUT, _TEXT, "rows that an all-to-all receives from each rank, likewise"),
    _maybe(C.SRC_RANK, _INT64, "rank that a receive is from"),
    _maybe(C.DST_RANK, _INT64, "rank that a send is to"),
)

DEVICE_INTERVALS: Final = Table(
    "device_intervals",
    "one interval on a device",
    (
        _ROW_ID,
        Column(C.KIND, _TEXT, "kernel, memcpy, memset, graph, sync or idle"),
        Column(C.NAME, _TEXT, "full name as recorded"),
        _RANK,
        Column(C.DEVICE, _INT32, "device index"),
        _maybe(C.STREAM, _INT64, "stream"),
        _maybe(C.CONTEXT, _INT64, "context"),
        _START,
        _DUR,
        _STEP,
        _CORRELATION,
        _maybe(C.LAUNCH_ROW, _INT64, "host row of the launching runtime call"),
        _maybe(C.OP_ROW, _INT64, "host row of the innermost op that launched it"),
        _maybe(C.GRID_X, _INT64, "blocks in x"),
        _maybe(C.GRID_Y, _INT64, "blocks in y"),
        _maybe(C.GRID_Z, _INT64, "blocks in z"),
        _maybe(C.BLOCK_X, _INT64, "threads of a block in x"),
        _maybe(C.BLOCK_Y, _INT64, "threads of a block in y"),
        _maybe(C.BLOCK_Z, _INT64, "threads of a block in z"),
        _maybe(C.REGISTERS, _INT64, "registers per thread"),
        _maybe(C.STATIC_SHARED_BYTES, _INT64, "static shared memory of a block, bytes"),
        _maybe(C.DYNAMIC_SHARED_BYTES, _INT64, "dynamic shared memory, bytes (torch.profiler: with static)"),
        _maybe(C.OCCUPANCY_PCT, _FLOAT64, "estimated achieved occupancy, percent"),
        _maybe(C.GRAPH_ID, _INT64, "CUDA graph"),
        _maybe(C.GRAPH_NODE_ID, _INT64, "node within the CUDA graph"),
        _maybe(C.BYTES, _INT64, "bytes copied or set"),
        _maybe(C.COPY_KIND, _TEXT, "H2D, D2H, D2D, P2P, H2H or unknown"),
        _maybe(C.SRC_MEMORY, _TEXT, "pageable, pinned, device, unified, array or unknown"),
        _maybe(C.DST_MEMORY, _TEXT, "pageable, pinned, device, unified, array or unknown"),
        _maybe(C.SRC_DEVICE, _INT32, "device copied from"),
        _maybe(C.DST_DEVICE, _INT32, "device copied to"),
        _maybe(C.IDLE_CAUSE, _TEXT, "why the device was idle"),
        _maybe(C.IDLE_OP_ROW, _INT64, "host row that filled the idle interval"),
        _maybe(C.CAPTURED_OP, _TEXT, "innermost op that launched it when its graph was captured"),
        _maybe(C.CAPTURED_CALL, _INT64, "number of that op's call within the capture"),
        _maybe(C.CAPTURED_PATH, _TEXT, "modules and ops around that op, outermost first, joined by ' > '"),
        _maybe(C.CAPTURED_MODULE, _TEXT, "the torch.nn.Module around that op"),
        _maybe(C.CAPTURED_SHAPES, _TEXT, "shapes of that op's inputs, compact JSON"),
        *_COLLECTIVE,
        _UNFINISHED,
    ),
)

HOST_INTERVALS: Final = Table(
    "host_intervals",
    "one interval on a host thread",
    (
        _ROW_ID,
        Column(C.KIND, _TEXT, "op, runtime, annotation, python, overhead or sync"),
        Column(C.NAME, _TEXT, "full name as recorded"),
        _RANK,
        Column(C.PID, _INT64, "process"),
        Column(C.TID, _INT64, "thread"),
        _START,
        _DUR,
        _STEP,
        _maybe(C.PARENT_ROW, _INT64, "host row of the innermost enclosing interval on the thread"),
        Column(C.DEPTH, _INT32, "number of enclosing intervals on the thread"),
        _CORRELATION,
        _maybe(C.EXTERNAL_ID, _INT64, "the profiler's own id of the op"),
        _maybe(C.SEQUENCE, _INT64, "autograd sequence number: joins forward and backward"),
        _maybe(C.FWD_TID, _INT64, "thread of the forward op of a backward op"),
        _maybe(C.PHASE, _TEXT, "forward, backward, optimizer, zero_grad or dataload"),
        _maybe(C.INPUT_SHAPES, _TEXT, "shapes of the inputs, compact JSON"),
        _maybe(C.INPUT_DTYPES, _TEXT, "dtypes of the inputs, compact JSON"),
        _maybe(C.STACK, _TEXT, "call stack, innermost frame first"),
        _maybe(C.MODULE, _TEXT, "the enclosing torch.nn.Module"),
        _maybe(C.FLOPS, _INT64, "floating point operations"),
        *_COLLECTIVE,
        _maybe(C.KERNEL_BACKEND, _TEXT, "what generated the kernel that the op launches, such as triton"),
        _maybe(C.KERNEL_FILE, _TEXT, "file of the generated kernel's source, as recorded"),
        _maybe(C.KERNEL_HASH, _TEXT, "hash of that source, which includes the kernel's generated name"),
        _maybe(C.KERNEL_KWARGS, _TEXT, "parameters that tuning chose for the generated kernel"),
        _UNFINISHED,
    ),
)

STEPS: Final = Table(
    "steps",
    "one profiled step",
    (
        _RANK,
        Column(C.STEP, _INT64, "number of the step"),
        Column(C.NAME, _TEXT, "name of the marker"),
        _START,
        Column(C.DUR_NS, _INT64, "duration of the marker on the host, ns", between=_LENGTH),
        _maybe(C.PHASE, _TEXT, "prefill, decode or mixed, of a step of an inference server"),
        _maybe(C.REQUESTS, _INT64, "requests of the step: its batch size"),
        _maybe(C.CONTEXT_REQUESTS, _INT64, "requests whose prompt is processed"),
        _maybe(C.GENERATION_REQUESTS, _INT64, "requests that generate"),
        _maybe(C.CONTEXT_TOKENS, _INT64, "tokens processed for requests whose prompt is processed"),
        _maybe(C.GENERATION_TOKENS, _INT64, "tokens processed for requests that generate"),
    ),
)

COUNTERS: Final = Table(
    "counters",
    "one sample",
    (
        Column(C.T_NS, _INT64, "time, ns since the run's t0", between=_INSTANT),
        Column(C.SOURCE, _TEXT, "nvml, process, torch, nsys or scheduler"),
        _maybe(C.RANK, _INT32, "rank that used the device; null for several ranks, and if unknown"),
        _maybe(C.DEVICE, _INT32, "device index, as the rank numbers its devices"),
        Column(C.METRIC, _TEXT, "what was sampled"),
        Column(C.UNIT, _TEXT, "unit of the value"),
        Column(C.VALUE, _FLOAT64, "the value"),
    ),
)

ALLOCATIONS: Final = Table(
    "allocations",
    "one allocator event",
    (
        Column(C.T_NS, _INT64, "time, ns since the run's t0", between=_INSTANT),
        _RANK,
        Column(C.DEVICE, _INT32, "device index; -1 is the host"),
        Column(C.BYTES, _INT64, "bytes, negative when freed"),
        _maybe(C.ADDRESS, _INT64, "address; the 64 bits reinterpreted as signed"),
        _maybe(C.TOTAL_ALLOCATED, _INT64, "bytes allocated after the event"),
        _maybe(C.TOTAL_RESERVED, _INT64, "bytes reserved after the event"),
        _maybe(C.OP_ROW, _INT64, "host row of the innermost op that allocated"),
    ),
)

COMPILED_KERNELS: Final = Table(
    "compiled_kernels",
    "one call of a kernel in code generated by Inductor, from the artifacts of torch.compile",
    (
        Column(C.GRAPH, _TEXT, "key of the graph, as in `## Call CompiledFxGraph KEY ##`, or a number"),
        Column(C.POSITION, _INT64, "number of the call in the graph's code"),
        Column(C.NAME, _TEXT, "name of its events in the profile"),
        Column(C.KERNEL_BACKEND, _TEXT, "cpp, triton, or extern: an op of ATen or of a library"),
        _maybe(C.TORCH_COMPILE_ID, _TEXT, "torch's i/j of the compilation"),
        _maybe(C.KERNEL_HASH, _TEXT, "as in `host_intervals`"),
        _maybe(C.SOURCE_HASH, _TEXT, "hash of the kernel's source without its generated name"),
        _maybe(C.SOURCE_LINES, _TEXT, "lines of the program, file:line, separated by commas"),
        _maybe(C.FUSED_OPS, _TEXT, "ops that were fused into it, separated by commas"),
    ),
)

HOST_SAMPLES: Final = Table(
    "host_samples",
    "one sample of the Python stack of a thread, taken every 10 ms or more in profiled steps and some others",
    (
        Column(C.T_NS, _INT64, "time, ns since the run's t0", between=_INSTANT),
        _RANK,
        Column(C.TID, _INT64, "thread"),
        Column(C.STACK, _TEXT, "functions as `train.py(3): main`, innermost first, separated by `;`"),
        Column(C.SOURCE_LINES, _TEXT, "line that runs in each function, separated by commas"),
        _maybe(C.PROFILED, _INT64, "1 if the step was profiled, 0 if not; missing in older runs: profiled"),
        _maybe(C.RAN_NS, _INT64, "CPU time of a thread other than that of the steps since its last sample"),
        _maybe(C.SINCE_NS, _INT64, "of the thread of the steps, if others run: time since its last sample"),
        _maybe(C.ASLEEP_NS, _INT64, "of that, for how long it was blocked"),
        _maybe(C.LOCK_WAIT_NS, _INT64, "of that, how long the sampler waited for the interpreter lock"),
    ),
)

_TABLES = (DEVICE_INTERVALS, HOST_INTERVALS, STEPS, COUNTERS, ALLOCATIONS, COMPILED_KERNELS, HOST_SAMPLES)
TABLES: Final = {table.name: table for table in _TABLES}
