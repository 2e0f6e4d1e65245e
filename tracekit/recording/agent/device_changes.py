"""Changes of how a recorded program uses GPUs: copies, memory, launches, attention, and communication.

`changes` describes the functions. Imports nothing of tracekit, as the other modules of the agent.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any
from weakref import ref

from .alternation import Applied
from .changes import set_arguments
from .model_changes import change_model

BUCKET_MB = 100
NCCL_CHANNELS = "16"
FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")
"""Functions of torch that make the same tensor on any device."""


def pin_batches(torch: Any, applied: Applied) -> None:
    """Let loaders return batches in pinned memory."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        return {} if arguments["pin_memory"] or not torch.cuda.is_available() else {"pin_memory": True}

    set_arguments(torch.utils.data.DataLoader, choose, applied)


def copy_asynchronously(torch: Any, applied: Applied) -> None:
    """Copy from pinned memory to a device without blocking the host."""
    for name in ("to", "cuda"):
        _copy_asynchronously_by(torch, name, applied)


def _copy_asynchronously_by(torch: Any, name: str, applied: Applied) -> None:
    original = getattr(torch.Tensor, name)

    @functools.wraps(original)
    def copy(self: Any, *arguments: Any, **options: Any) -> Any:
        is_told = options.get("non_blocking") or any(isinstance(value, bool) for value in arguments)
        if applied.is_on and not is_told and self.is_cpu and self.is_pinned():
            moved = original(self, *arguments, **{**options, "non_blocking": True})
            if not moved.is_cpu:
                applied()
            return moved
        return original(self, *arguments, **options)

    setattr(torch.Tensor, name, copy)


def grow_segments(torch: Any, applied: Applied) -> None:
    """Let the allocator of CUDA grow segments of memory instead of making new ones, before it makes any."""
    name = "PYTORCH_CUDA_ALLOC_CONF"
    is_set = "expandable_segments" in os.environ.get(name, "")
    if torch.cuda.is_available() and not torch.cuda.is_initialized() and not is_set:
        given = os.environ.get(name)
        torch.cuda.memory._set_allocator_settings(",".join(filter(None, (given, "expandable_segments:True"))))
        applied()


def view_gradients_in_buckets(torch: Any, applied: Applied) -> None:
    """Let gradients of DistributedDataParallel be views of its buckets, which are then not copied."""
    _set_switch(torch, "gradient_as_bucket_view", applied, value=True)


def keep_buffers_local(torch: Any, applied: Applied) -> None:
    """Do not broadcast the buffers of a DistributedDataParallel module in each step."""
    _set_switch(torch, "broadcast_buffers", applied, value=False)


def use_larger_buckets(torch: Any, applied: Applied) -> None:
    """Reduce more gradients of DistributedDataParallel at once."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        is_useful = (arguments["bucket_cap_mb"] or 25) < BUCKET_MB
        return {"bucket_cap_mb": BUCKET_MB} if is_useful else {}

    set_arguments(torch.nn.parallel.DistributedDataParallel, choose, applied)


def keep_graph_static(torch: Any, applied: Applied) -> None:
    """Let DistributedDataParallel plan its reductions once, as the graph is the same in each step."""
    _set_switch(torch, "static_graph", applied, value=True)


def _set_switch(torch: Any, name: str, applied: Applied, *, value: bool) -> None:
    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        return {} if arguments[name] is value else {name: value}

    set_arguments(torch.nn.parallel.DistributedDataParallel, choose, applied)


def use_fast_matmul(torch: Any, applied: Applied) -> None:
    """Allow TensorFloat-32, or bfloat16 on some CPUs, inside products of float32 matrices."""

    def allow(_: Any) -> None:
        if torch.get_float32_matmul_precision() == "highest":
            applied()
            read, write = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
            applied.follow(partial(_exchange, read, write, "high", []))

    change_model(torch, allow)  # until then the program may set it


def search_convolutions(torch: Any, applied: Applied) -> None:
    """Let cuDNN measure which algorithm of a convolution is the fastest."""

    def search(_: Any) -> None:
        if torch.cuda.is_available() and not torch.backends.cudnn.benchmark:
            applied()
            cudnn = torch.backends.cudnn
            read, write = partial(getattr, cudnn, "benchmark"), partial(setattr, cudnn, "benchmark")
            applied.follow(partial(_exchange, read, write, True, []))  # noqa: FBT003 (a value)

    change_model(torch, search)


def _exchange(
    read: Callable[[], Any],
    write: Callable[[Any], None],
    wanted: Any,
    former: list[Any],
    on: bool,  # noqa: FBT001
) -> None:
    """Give a setting another value, or the former one unless the program has set it meanwhile."""
    if on:
        former[:] = [read()]
        write(wanted)
    elif former and read() == wanted:
        write(former.pop())


def fuse_attention(torch: Any, applied: Applied) -> None:
    """Ignore requests to compute attention by plain products and a softmax instead of a fused kernel."""
    attention: Any = import_module("torch.nn.attention")
    select, backends = attention._sdpa_kernel, attention.SDPBackend

    def select_fused(wanted: Any, *arguments: Any, **options: Any) -> None:
        chosen = list(wanted)
        if set(chosen) == {backends.MATH}:
            applied()
            chosen = [backends.FLASH_ATTENTION, backends.EFFICIENT_ATTENTION, backends.MATH]
        select(chosen, *arguments, **options)

    attention._sdpa_kernel = select_fused
    for name in ("enable_flash_sdp", "enable_mem_efficient_sdp"):
        setattr(torch.backends.cuda, name, partial(_ignore_off, applied, getattr(torch.backends.cuda, name)))


def _ignore_off(applied: Applied, switch: Callable[[bool], None], enabled: bool) -> None:  # noqa: FBT001
    if not enabled:
        applied()
    switch(True)  # noqa: FBT003 (as torch's)


def attend_by_cudnn(torch: Any, applied: Applied) -> None:
    """Compute attention in half precision on a GPU by cuDNN before other kernels."""
    attention, functional = import_module("torch.nn.attention"), torch.nn.functional
    original, kinds = functional.scaled_dot_product_attention, attention.SDPBackend
    order = [kinds.CUDNN_ATTENTION, kinds.FLASH_ATTENTION, kinds.EFFICIENT_ATTENTION, kinds.MATH]

    @functools.wraps(original)
    def attend(query: Any, *arguments: Any, **options: Any) -> Any:
        if not applied.is_on or not query.is_cuda or query.dtype not in {torch.float16, torch.bfloat16}:
            return original(query, *arguments, **options)
        applied()
        with attention.sdpa_kernel(order, set_priority=True):
            return original(query, *arguments, **options)

    functional.scaled_dot_product_attention = attend


def cache_allocations(torch: Any, applied: Applied) -> None:
    """Let torch keep freed memory of a GPU for its next tensors, where a variable forbids it."""
    _unset(torch, "PYTORCH_NO_CUDA_MEMORY_CACHING", applied)


def launch_asynchronously(torch: Any, applied: Applied) -> None:
    """Do not wait for each kernel after its launch, where a variable asks for it."""
    _unset(torch, "CUDA_LAUNCH_BLOCKING", applied)


def _unset(torch: Any, name: str, applied: Applied) -> None:
    """Remove a variable before CUDA, which reads it, is initialized."""
    if not torch.cuda.is_initialized() and os.environ.pop(name, None) is not None:
        applied()


def use_one_connection(torch: Any, applied: Applied) -> None:
    """Submit the work of all streams of a GPU by one hardware queue: it starts in order of its launches."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if not torch.cuda.is_initialized() and name not in os.environ:
        os.environ[name] = "1"
        torch.cuda._lazy_call(applied)


def prioritize_nccl(torch: Any, applied: Applied) -> None:
    """Run kernels of NCCL on streams of high priority."""
    _set_for_nccl(torch, "TORCH_NCCL_HIGH_PRIORITY", "1", applied)


def widen_nccl(torch: Any, applied: Applied) -> None:
    """Let NCCL use more channels, and so more multiprocessors, for a collective."""
    _set_for_nccl(torch, "NCCL_MIN_NCHANNELS", NCCL_CHANNELS, applied)


def _set_for_nccl(torch: Any, name: str, value: str, applied: Applied) -> None:
    """Set a variable before process groups that use NCCL are made, unless the program has set it."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    original = distributed.init_process_group

    @functools.wraps(original)
    def init(backend: Any = None, *arguments: Any, **options: Any) -> Any:
        uses_nccl = "nccl" in str(backend) if backend else torch.cuda.is_available()
        if uses_nccl and name not in os.environ:
            os.environ[name] = value
            applied()
        return original(backend, *arguments, **options)

    distributed.init_process_group = init


def create_on_device(torch: Any, applied: Applied) -> None:
    """Make tensors on the device to which the same line copies them, once it was seen to do so.

    The second time that `torch.zeros(64).to(device)` runs, it makes the tensor there and copies nothing.
    """
    devices: dict[tuple[Any, int], Any] = {}
    """Device to which the tensor of a call was copied, by its code and instruction."""
    last: list[Any] = [lambda: None, None, 0]
    """Reference to the tensor that was made last, its call, and its line."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(*arguments: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            place = frame.f_code, frame.f_lasti
            if place in devices and options.get("device") is None:
                applied()
                return original(*arguments, **options | {"device": devices[place]})
            tensor = original(*arguments, **options)
            last[:] = ref(tensor), place, frame.f_lineno
            return tensor

        return make

    def watch(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def copy(self: Any, *arguments: Any, **options: Any) -> Any:
            copied = original(self, *arguments, **options)
            made, place, line = last
            if self is made() and self.is_cpu and not copied.is_cpu:
                frame = sys._getframe(1)
                if frame.f_code is place[0] and frame.f_lineno == line:
                    devices[place] = copied.device
            return copied

        return copy

    for name in FACTORIES:
        setattr(torch, name, wrap(getattr(torch, name)))
    for name in ("to", "cuda"):
        setattr(torch.Tensor, name, watch(getattr(torch.Tensor, name)))
