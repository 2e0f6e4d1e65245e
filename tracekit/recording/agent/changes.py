"""Changes of a recorded program that may make it faster, applied inside of it without an edit.

Each function takes the program's torch, before the program uses it, and `applied`, which it calls whenever
the change takes effect: a change that finds nothing to change, because the program has no data loader or sets
the argument itself, is reported as not applied. `tracekit.recording.changes` describes the functions. Imports
nothing of tracekit, as the other modules of the agent.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, TypeAlias

Applied: TypeAlias = Callable[[], None]

MAX_WORKERS = 4
PREFETCHED_BATCHES = 8
BUCKET_MB = 100
MALLOCS = ("jemalloc", "tcmalloc")
COLLECTOR_THRESHOLD = 100_000
"""New objects from which Python's garbage collector runs; its default is 700 or 2,000."""

LOADER_WORKER = "torch.utils.data._utils.worker"
"""Module in which the workers of data loaders set their threads."""

counts: dict[str, int] = {}
"""How often each requested change took effect, by its name."""
places: dict[str, str] = {}
"""Where each requested change took effect first, as file:line of the program."""

_CLASS: Any = vars(object)["__class__"]
_model_changes: list[Callable[[Any], None]] = []
"""What is called with the model, in this order, before its first call."""


def apply_changes(torch: Any, changes: list[dict[str, str]]) -> None:
    """Apply changes to the program of this process.

    Args:
        torch: The program's torch.
        changes: Of each change its name, and the file and the name of its function.
    """
    libraries = (os.path.dirname(torch.__file__), os.path.dirname(__file__), "<frozen ")  # noqa: PTH120
    _model_changes.clear()
    for change in changes:
        counts[change["name"]] = 0
        _load_function(change)(torch, partial(_count, change["name"], libraries))


def _count(name: str, libraries: tuple[str, ...]) -> None:
    """Count that a change took effect, and keep the line of the program at which it did so first.

    Args:
        name: Name of the change.
        libraries: What the files of torch and of the agent begin with.
    """
    counts[name] += 1
    if name in places:
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(libraries):
        frame = frame.f_back
    places[name] = f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _load_function(change: dict[str, str]) -> Callable[[Any, Applied], None]:
    if change["file"] == __file__:
        return globals()[change["function"]]  # type: ignore[no-any-return]
    spec: Any = spec_from_file_location(f"{__package__}.change_{len(counts)}", change["file"])
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, change["function"])  # type: ignore[no-any-return]


def set_gradients_to_none(torch: Any, applied: Applied) -> None:
    """Clear gradients by setting them to None, where the program fills them with zeros."""
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        _clear_by_none(owner, applied)


def _clear_by_none(owner: Any, applied: Applied) -> None:
    original = owner.zero_grad

    @functools.wraps(original)
    def zero_grad(self: Any, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 (as torch's)
        if not set_to_none:
            applied()
        original(self, set_to_none=True)

    owner.zero_grad = zero_grad


def use_foreach(torch: Any, applied: Applied) -> None:
    """Update all parameters in a few calls, where an optimizer neither does so nor is fused."""
    _set_default(torch, "foreach", applied)


def use_fused(torch: Any, applied: Applied) -> None:
    """Update parameters by fused kernels, where an optimizer has them."""
    _set_default(torch, "fused", applied)


def _set_default(torch: Any, name: str, applied: Applied) -> None:
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def init(self: Any, params: Any, defaults: dict[str, Any]) -> None:
        original(self, params, defaults)
        # torch updates parameters on a device by its foreach functions unless it is told otherwise.
        on_cpu = any(parameter.is_cpu for group in self.param_groups for parameter in group["params"])
        is_default = name == "foreach" and defaults.get(name) is None and not on_cpu
        is_set = any(defaults.get(way) for way in ("foreach", "fused", "differentiable"))
        if name in defaults and not is_set and not is_default:
            for options in (self.defaults, *self.param_groups):
                options[name] = True
            applied()

    torch.optim.Optimizer.__init__ = init


def load_in_workers(torch: Any, applied: Applied) -> None:
    """Load batches in processes of their own, where a loader has none; iterable data would be repeated."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        is_iterable = isinstance(arguments["dataset"], torch.utils.data.IterableDataset)
        if arguments["num_workers"] or is_iterable:
            return {}
        return {"num_workers": max(1, min(MAX_WORKERS, len(os.sched_getaffinity(0))))}

    _set_arguments(torch.utils.data.DataLoader, choose, applied)


def keep_workers(torch: Any, applied: Applied) -> None:
    """Keep the workers of a loader between epochs."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        is_useful = arguments["num_workers"] and not arguments["persistent_workers"]
        return {"persistent_workers": True} if is_useful else {}

    _set_arguments(torch.utils.data.DataLoader, choose, applied)


def prefetch_more(torch: Any, applied: Applied) -> None:
    """Let each worker of a loader prepare more batches ahead."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        is_useful = arguments["num_workers"] and (arguments["prefetch_factor"] or 2) < PREFETCHED_BATCHES
        return {"prefetch_factor": PREFETCHED_BATCHES} if is_useful else {}

    _set_arguments(torch.utils.data.DataLoader, choose, applied)


def pin_batches(torch: Any, applied: Applied) -> None:
    """Let loaders return batches in pinned memory."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        return {} if arguments["pin_memory"] or not torch.cuda.is_available() else {"pin_memory": True}

    _set_arguments(torch.utils.data.DataLoader, choose, applied)


def copy_asynchronously(torch: Any, applied: Applied) -> None:
    """Copy from pinned memory to a device without blocking the host."""
    for name in ("to", "cuda"):
        _copy_asynchronously_by(torch, name, applied)


def _copy_asynchronously_by(torch: Any, name: str, applied: Applied) -> None:
    original = getattr(torch.Tensor, name)

    @functools.wraps(original)
    def copy(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.is_cpu and not options.get("non_blocking") and self.is_pinned():
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


def use_other_malloc(_: Any, applied: Applied) -> None:
    """Count whether the memory allocator that the change preloads is in use."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        if any(name in line for line in maps for name in MALLOCS):
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

    _set_arguments(torch.nn.parallel.DistributedDataParallel, choose, applied)


def keep_graph_static(torch: Any, applied: Applied) -> None:
    """Let DistributedDataParallel plan its reductions once, as the graph is the same in each step."""
    _set_switch(torch, "static_graph", applied, value=True)


def _set_switch(torch: Any, name: str, applied: Applied, *, value: bool) -> None:
    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        return {} if arguments[name] is value else {name: value}

    _set_arguments(torch.nn.parallel.DistributedDataParallel, choose, applied)


def _set_arguments(owner: type, choose: Callable[[dict[str, Any]], dict[str, Any]], applied: Applied) -> None:
    """Replace arguments with which objects of a class are made, by what `choose` returns for them."""
    original = owner.__init__  # type: ignore[misc]
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        bound = signature.bind(self, *arguments, **options)
        bound.apply_defaults()
        if chosen := choose(dict(bound.arguments)):
            bound.arguments.update(chosen)
            applied()
        original(*bound.args, **bound.kwargs)

    owner.__init__ = init  # type: ignore[misc]


def use_one_thread(torch: Any, applied: Applied) -> None:
    """Compute each op in one thread, whatever the program sets."""
    _keep_threads(torch, 1, applied)


def use_all_cores(torch: Any, applied: Applied) -> None:
    """Compute each op in a thread per core that the process may use, whatever the program sets."""
    _keep_threads(torch, len(os.sched_getaffinity(0)), applied)


def _keep_threads(torch: Any, count: int, applied: Applied) -> None:
    """Set the number of threads, and ignore others, except in workers of data loaders, which set one."""
    original = torch.set_num_threads

    @functools.wraps(original)
    def set_threads(number: int) -> None:
        if sys._getframe(1).f_globals.get("__name__") == LOADER_WORKER:
            original(number)
            return
        if number != count:
            applied()
        original(count)

    torch.set_num_threads = set_threads
    if torch.get_num_threads() != count:
        original(count)
        applied()


def flush_denormals(torch: Any, applied: Applied) -> None:
    """Replace the smallest numbers, whose arithmetic is slow on most CPUs, by zero."""
    if torch.set_flush_denormal(True):
        applied()


def use_fast_matmul(torch: Any, applied: Applied) -> None:
    """Allow TensorFloat-32, or bfloat16 on some CPUs, inside products of float32 matrices."""

    def allow(_: Any) -> None:
        if torch.get_float32_matmul_precision() == "highest":
            torch.set_float32_matmul_precision("high")
            applied()

    _change_model(torch, allow)  # until then the program may set it


def search_convolutions(torch: Any, applied: Applied) -> None:
    """Let cuDNN measure which algorithm of a convolution is the fastest."""

    def search(_: Any) -> None:
        if torch.cuda.is_available() and not torch.backends.cudnn.benchmark:
            torch.backends.cudnn.benchmark = True
            applied()

    _change_model(torch, search)


def turn_off_anomaly_detection(torch: Any, applied: Applied) -> None:
    """Ignore requests to look for NaN in each backward op."""
    _ignore_switch(torch, "set_anomaly_enabled", applied)


def allow_nondeterministic(torch: Any, applied: Applied) -> None:
    """Ignore requests to use deterministic algorithms."""
    _ignore_switch(torch, "use_deterministic_algorithms", applied)


def _ignore_switch(torch: Any, name: str, applied: Applied) -> None:
    original = getattr(torch, name)

    @functools.wraps(original)
    def switch(mode: bool, *arguments: Any, **options: Any) -> None:  # noqa: FBT001 (as torch's)
        if mode:
            applied()
        original(False, *arguments, **options)  # noqa: FBT003

    setattr(torch, name, switch)


def collect_garbage_less(torch: Any, applied: Applied) -> None:
    """Let Python look for garbage less often."""

    def raise_threshold(_: Any) -> None:
        threshold, *others = gc.get_threshold()
        if gc.isenabled() and 0 < threshold < COLLECTOR_THRESHOLD:
            gc.set_threshold(COLLECTOR_THRESHOLD, *others)
            applied()

    _change_model(torch, raise_threshold)


def compile_model(torch: Any, applied: Applied) -> None:
    """Compile the outermost module that is called first, unless the program has compiled it."""
    _compile(torch, applied)


def replay_compiled_model(torch: Any, applied: Applied) -> None:
    """Compile the outermost module, and launch its kernels as CUDA graphs."""
    _compile(torch, applied, mode="reduce-overhead")


def _compile(torch: Any, applied: Applied, **options: str) -> None:
    def compile_module(module: Any) -> None:
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None):
            return
        _replace_forward(module, torch.compile(module.forward, **options))
        applied()

    _change_model(torch, compile_module, first=True)  # others, which count, are not to be compiled


def evaluate_model(torch: Any, applied: Applied) -> None:
    """Put the outermost module that is called first into evaluation mode, if gradients are off."""

    def evaluate(module: Any) -> None:
        if module.training and not torch.is_grad_enabled():
            module.eval()
            applied()

    _change_model(torch, evaluate)


def compute_in_bfloat16(torch: Any, applied: Applied) -> None:
    """Run the outermost module that is called first under autocast to bfloat16, unless autocast is on."""

    def wrap(module: Any) -> None:
        device = next(module.parameters()).device.type
        _surround(
            module,
            lambda: torch.autocast(device, dtype=torch.bfloat16),
            applied,
            fits=lambda: not torch.is_autocast_enabled(device),
        )

    _change_model(torch, wrap)


def infer_without_gradients(torch: Any, applied: Applied) -> None:
    """Run the outermost module that is called first in inference mode, in calls that do not train it."""

    def wrap(module: Any) -> None:
        _surround(
            module,
            torch.inference_mode,
            applied,
            fits=lambda: not module.training and torch.is_grad_enabled(),
        )

    _change_model(torch, wrap)


def use_channels_last(torch: Any, applied: Applied) -> None:
    """Store the weights of the outermost module that is called first with channels last."""

    def convert(module: Any) -> None:
        convolutions = [layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d)]
        for layer in convolutions:  # weights of other ranks have no such order
            layer.to(memory_format=torch.channels_last)
        if convolutions:
            applied()

    _change_model(torch, convert)


def _surround(
    module: Any, make_context: Callable[[], Any], applied: Applied, *, fits: Callable[[], bool]
) -> None:
    """Run each call of a module for which `fits` returns true in a context."""
    forward = module.forward

    @functools.wraps(forward)
    def surrounded(*arguments: Any, **options: Any) -> Any:
        if not fits():
            return forward(*arguments, **options)
        applied()
        with make_context():
            return forward(*arguments, **options)

    _replace_forward(module, surrounded)


def _replace_forward(module: Any, forward: Callable[..., Any]) -> None:
    """Let a module run another function, by a class of its own: copies and files of it are as before."""
    original: Any = type(module)
    plain = getattr(original, "_unchanged", original)

    class Changed(original):  # type: ignore[misc]
        __class__ = property(lambda _: plain)  # pickle compares it with the class that it stores
        _unchanged = plain

        def __reduce_ex__(self, protocol: Any) -> Any:
            function, arguments, *state = original.__reduce_ex__(self, protocol)
            return (function, tuple(plain if part is type(self) else part for part in arguments), *state)

    @functools.wraps(forward)
    def run(_: Any, *arguments: Any, **options: Any) -> Any:
        return forward(*arguments, **options)

    Changed.forward = run
    for name in ("__name__", "__qualname__", "__module__"):
        setattr(Changed, name, getattr(plain, name))
    _CLASS.__set__(module, Changed)


def _change_model(torch: Any, change: Callable[[Any], None], *, first: bool = False) -> None:
    """Call `change` with the first module with parameters that the program calls, before that call.

    `__call__` is replaced until then: a global hook of torch would break a first call that is compiled.

    Args:
        torch: The program's torch.
        change: Function of the module.
        first: Before the other changes.
    """
    _model_changes.insert(0 if first else len(_model_changes), change)
    if len(_model_changes) > 1:
        return
    owner = torch.nn.Module
    original = owner.__call__

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if owner.__call__ is call and next(self.parameters(), None) is not None:
            owner.__call__ = original
            for change in _model_changes:
                change(self)
        return original(self, *arguments, **options)

    owner.__call__ = call
