"""Describe a program step by step; the clock of each host thread and stream advances as it would.

A launch costs its thread `launch_ns`; what it launched starts `delay_ns` after the call began, or when its
stream is free, whichever is later. Nothing is random: the same description gives the same trace.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from samples.simulator.events import Allocation, DeviceEvent, HostEvent, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Dim3 = tuple[int, int, int]
MAIN_THREAD = 1000
DEFAULT_STREAM = 7
LAUNCH_NS = 4_000
DELAY_NS = 5_000
PAGE = 512
_MEMORY = {"pageable": "Pageable", "pinned": "Pinned", "device": "Device"}
_ENDS = {
    "H2D": ("HtoD", "pageable", "device"),
    "D2H": ("DtoH", "device", "pageable"),
    "D2D": ("DtoD", "device", "device"),
    "P2P": ("PtoP", "device", "device"),
}


class Program:
    """One process of a simulated job.

    Args:
        rank: Its rank; written as `distributedInfo` when `world_size` is above 1.
        world_size: Number of processes of the job.
        device: Default device.
        start_ns: Host time of its first event.
        device_name: What the devices call themselves; a trace of it says all the same that it is simulated.
        sm_count: Streaming multiprocessors of each device.

    Example:
        >>> program = Program()
        >>> with program.step(), program.op("aten::relu", shapes=[[8, 8]]):
        ...     event = program.kernel("relu_kernel", 2_000, grid=(1, 1, 1), block=(64, 1, 1))
        >>> event.start_ns, event.dur_ns, event.step
        (6000, 2000, 0)
    """

    def __init__(
        self,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: int = 0,
        start_ns: int = 0,
        device_name: str = "Simulated GPU",
        sm_count: int = 132,
    ) -> None:
        self.rank, self.world_size, self.device = rank, world_size, device
        self.device_name, self.sm_count = device_name, sm_count
        self.host: list[HostEvent] = []
        self.on_device: list[DeviceEvent] = []
        self.allocations: list[Allocation] = []
        self.tid = MAIN_THREAD
        self._clocks = {MAIN_THREAD: start_ns}
        self._free: dict[tuple[int, int], int] = {}
        self._open_ops: list[int] = []
        self._step: int | None = None
        self._capturing: bool | None = None  # with names of kernels; None while no graph is captured
        self._next_step = self._ids = self._allocated = self._graphs = 0

    @property
    def now_ns(self) -> int:
        """Time of the current thread."""
        return self._clocks[self.tid]

    def wait(self, ns: int) -> None:
        """Let time pass on the current thread: work the profiler does not see."""
        self._clocks[self.tid] += ns

    @contextmanager
    def thread(self, tid: int) -> Iterator[None]:
        """Run the block on another thread, which starts now; the current one goes on when it ends."""
        outer = self.tid
        self._clocks[tid] = max(self._clocks.get(tid, 0), self.now_ns)
        self.tid = tid
        yield
        self._clocks[outer] = max(self._clocks[outer], self._clocks[tid])
        self.tid = outer

    @contextmanager
    def span(self, kind: Kind, name: str, *, edge_ns: int = 0, **args: Any) -> Iterator[int]:
        """Any host interval around the block, `edge_ns` of its own on both sides; gives its external id."""
        identity, start = self._identity(), self.now_ns
        self.wait(edge_ns)
        yield identity
        self.wait(edge_ns)
        self._host(kind, name, start, external_id=identity, args=args)

    @contextmanager
    def step(self, *, edge_ns: int = 500) -> Iterator[int]:
        """A profiled step, marked `ProfilerStep#N`; gives N."""
        number, self._next_step = self._next_step, self._next_step + 1
        self._step = number
        with self.annotation(f"ProfilerStep#{number}", edge_ns=edge_ns):
            yield number
        self._step = None

    @contextmanager
    def annotation(self, name: str, *, edge_ns: int = 500) -> Iterator[None]:
        """A range the user or an optimizer marked, such as `Optimizer.zero_grad#SGD.zero_grad`."""
        with self.span(Kind.ANNOTATION, name, edge_ns=edge_ns):
            yield

    @contextmanager
    def python(self, frame: str) -> Iterator[None]:
        """A Python frame around the block, such as `train.py(12): main`."""
        with self.span(Kind.PYTHON, frame):
            yield

    @contextmanager
    def op(
        self,
        name: str,
        *,
        shapes: Sequence[Sequence[int]] | None = None,
        dtypes: Sequence[str] | None = None,
        edge_ns: int = 500,
        **args: Any,
    ) -> Iterator[int]:
        """An operator around the block; what the block launches belongs to it.

        `shapes` and `dtypes` (`float`, `double`, `long int`, `c10::Half`, ...) are those of its inputs;
        `args` are further fields as Kineto names them, such as `**{"Call stack": "train.py(12): main"}`.
        """
        dims = [list(shape) for shape in shapes] if shapes is not None else None
        recorded = {"Input Dims": dims, "Input type": list(dtypes) if dtypes is not None else None}
        known = {key: value for key, value in recorded.items() if value is not None}
        with self.span(Kind.OP, name, edge_ns=edge_ns, **known, **args) as identity:
            self._open_ops.append(identity)
            yield identity
            self._open_ops.pop()

    def kernel(
        self,
        name: str,
        dur_ns: int,
        *,
        grid: Dim3 = (1, 1, 1),
        block: Dim3 = (128, 1, 1),
        registers: int = 32,
        shared_bytes: int = 0,
        occupancy_pct: int = 50,
        stream: int = DEFAULT_STREAM,
        device: int | None = None,
        launch_ns: int = LAUNCH_NS,
        delay_ns: int = DELAY_NS,
    ) -> DeviceEvent:
        """Launch one kernel."""
        recorded = {"kernel": name} if self._capturing else {}
        correlation, earliest = self._launch("cudaLaunchKernel", launch_ns, delay_ns, **recorded)
        args = {
            "queued": 0,
            "context": 1,
            "registers per thread": registers,
            "shared memory": shared_bytes,
            "grid": list(grid),
            "block": list(block),
            "est. achieved occupancy %": occupancy_pct,
        }
        return self._device(Kind.KERNEL, name, earliest, dur_ns, correlation, stream, device, args)

    def copy(
        self,
        direction: str,
        size: int,
        *,
        host_memory: str = "pageable",
        gb_per_s: float = 10,
        wait: bool | None = None,
        call: str = "cudaMemcpyAsync",
        stream: int = DEFAULT_STREAM,
        device: int | None = None,
        launch_ns: int = LAUNCH_NS,
        delay_ns: int = DELAY_NS,
    ) -> DeviceEvent:
        """Copy bytes: H2D, D2H, D2D or P2P; with pageable memory the host waits for the end.

        `wait` says otherwise: True is PyTorch's blocking copy from pinned memory, False a copy that returns.
        """
        letters, source, target = _ENDS[direction]
        ends = [host_memory if end == "pageable" else end for end in (source, target)]
        name = f"Memcpy {letters} ({_MEMORY[ends[0]]} -> {_MEMORY[ends[1]]})"
        correlation, earliest = self._launch(call, launch_ns, delay_ns)
        dur_ns = max(1, int(size // gb_per_s))
        args = {"context": 1, "bytes": size, "memory bandwidth (GB/s)": size / dur_ns}
        event = self._device(Kind.MEMCPY, name, earliest, dur_ns, correlation, stream, device, args)
        if "pageable" in ends if wait is None else wait:
            self.synchronize("cudaStreamSynchronize", stream=stream, device=device)
        return event

    def memset(
        self,
        size: int,
        dur_ns: int,
        *,
        stream: int = DEFAULT_STREAM,
        device: int | None = None,
        launch_ns: int = LAUNCH_NS,
        delay_ns: int = DELAY_NS,
    ) -> DeviceEvent:
        """Set bytes of device memory."""
        correlation, earliest = self._launch("cudaMemsetAsync", launch_ns, delay_ns)
        args = {"context": 1, "bytes": size, "memory bandwidth (GB/s)": size / max(dur_ns, 1)}
        return self._device(
            Kind.MEMSET, "Memset (Device)", earliest, dur_ns, correlation, stream, device, args
        )

    def graph(
        self,
        kernels: Sequence[tuple[str, int]],
        *,
        recorded: bool = True,
        graph_id: int | None = None,
        stream: int = DEFAULT_STREAM,
        launch_ns: int = LAUNCH_NS,
        delay_ns: int = DELAY_NS,
    ) -> list[DeviceEvent]:
        """Replay a CUDA graph of (name, duration) kernels: one launch, many kernels of its correlation id.

        With `recorded=False` the launch stands alone, as when the profiler missed what the graph ran.
        Launches of one graph have the same `graph_id`; by default each launch is one of a new graph.
        """
        correlation, earliest = self._launch("cudaGraphLaunch", launch_ns, delay_ns)
        self._graphs += 1
        events = []
        for node, (name, dur_ns) in enumerate(kernels if recorded else ()):
            args = {
                "context": 1,
                "grid": [1, 1, 1],
                "block": [128, 1, 1],
                "graph id": graph_id or self._graphs,
            }
            args["graph node id"] = node + 1
            events.append(self._device(Kind.KERNEL, name, earliest, dur_ns, correlation, stream, None, args))
        return events

    @contextmanager
    def capture(self, title: str = "capture_1_FULL", *, named: bool = True) -> Iterator[None]:
        """Capture a graph: launches in the block are recorded into it, and nothing is executed.

        With `named` the launches carry the names of the kernels, as those of HIP do; those of CUDA do not.
        """
        with self.annotation(title):
            self._launch("cudaStreamBeginCapture", LAUNCH_NS, 0)
            self._capturing = named
            yield
            self._capturing = None
            self._launch("cudaStreamEndCapture", LAUNCH_NS, 0)

    def synchronize(
        self, call: str = "cudaDeviceSynchronize", *, stream: int | None = None, device: int | None = None
    ) -> None:
        """Let the host wait until the device, or one stream of it, is done."""
        where = self.device if device is None else device
        busy = [free for (dev, lane), free in self._free.items() if dev == where and stream in (None, lane)]
        start = self.now_ns
        self._clocks[self.tid] = max([start + 1_000, *busy])
        self._host(Kind.RUNTIME, call, start, correlation=self._identity(), args={"cbid": 165})

    def wait_event(self, *, stream: int, on_stream: int, device: int | None = None) -> None:
        """Let what `stream` does next wait for what `on_stream` has been given so far; the host goes on."""
        where = self.device if device is None else device
        for call in ("cudaEventRecord", "cudaStreamWaitEvent"):
            start = self.now_ns
            self.wait(1_000)
            self._host(Kind.RUNTIME, call, start, correlation=self._identity(), args={"cbid": 135})
        free = self._free.get((where, stream), 0)
        self._free[where, stream] = max(free, self._free.get((where, on_stream), 0))

    def allocate(
        self,
        size: int,
        *,
        device: int | None = None,
        address: int | None = None,
        reserved: int | None = None,
    ) -> int:
        """Take memory from the allocator; gives its address. A negative size frees.

        `address` names the memory an earlier call gave, so that a free is seen to end it; without one each
        call has its own. `reserved` is what the allocator holds afterwards, by default what it must, in 2 MiB
        blocks.
        """
        where = self.device if device is None else device
        self._allocated += size
        if address is None:
            address = 0x7F00_0000_0000 + PAGE * len(self.allocations)
        if reserved is None:
            reserved = -(-max(self._allocated, 0) // (1 << 21)) << 21
        self.allocations.append(
            Allocation(self.now_ns, size, address, where, self._allocated, reserved, self.tid)
        )
        return address

    def _identity(self) -> int:
        self._ids += 1
        return self._ids

    def _launch(self, call: str, launch_ns: int, delay_ns: int, **args: Any) -> tuple[int, int]:
        correlation, start = self._identity(), self.now_ns
        self.wait(launch_ns)
        self._host(Kind.RUNTIME, call, start, correlation=correlation, args={"cbid": 211, **args})
        return correlation, start + delay_ns

    def _host(
        self,
        kind: Kind,
        name: str,
        start: int,
        *,
        args: dict[str, Any],
        external_id: int | None = None,
        correlation: int | None = None,
    ) -> None:
        self.host.append(
            HostEvent(
                kind, name, start, self.now_ns - start, self.tid, self._step, external_id, correlation, args
            )
        )

    def _device(
        self,
        kind: Kind,
        name: str,
        earliest: int,
        dur_ns: int,
        correlation: int,
        stream: int,
        device: int | None,
        args: dict[str, Any],
    ) -> DeviceEvent:
        lane = (self.device if device is None else device, stream)
        start = max(earliest, self._free.get(lane, 0))
        op = self._open_ops[-1] if self._open_ops else None
        event = DeviceEvent(kind, name, start, dur_ns, *lane, self._step, correlation, op, args)
        if self._capturing is None:
            self._free[lane] = start + dur_ns
            self.on_device.append(event)
        return event
