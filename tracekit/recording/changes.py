"""Changes that `tracekit try` can make inside a program: what each is for, and the code to write instead.

A package adds its own by an entry point of the group `tracekit.changes`, whose value is a `Change`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from ctypes.util import find_library
from dataclasses import InitVar, dataclass
from inspect import getfile
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tracekit import registry
from tracekit.errors import UnusableInputError, did_you_mean
from tracekit.recording.agent import changes as functions
from tracekit.recording.agent import device_changes, model_changes

Settings: TypeAlias = Mapping[str, Any]
Results: TypeAlias = Literal["equal", "rounding", "precision"]
"""What a change does to the numbers that a program computes: nothing, another order of operations, or fewer
digits."""
TOLERANCE: dict[Results, float] = {"equal": 0.0, "rounding": 1e-3, "precision": 0.05}
"""Largest relative difference of printed numbers that each kind of change may make."""
_COLLECTOR_DEFAULT, _MANY_OBJECTS = 700, 500_000
"""New objects from which Python collects by default, and objects that it looks at for long, of which a small
program of torch has 290,000."""
ANY_DEVICE = ("cpu", "cuda")


@dataclass(frozen=True)
class Argument:
    """A change of the source: an argument of the call at which it takes effect.

    Attributes:
        name: Name of the argument.
        value: Its value, as source.
        functions: Names of the functions or classes that are called.
        position: Position at which it may be given without a name; None if it must be named.
    """

    name: str
    value: str
    functions: tuple[str, ...]
    position: int | None = None


@dataclass(frozen=True)
class Statement:
    """A change of the source: a statement after the imports, which needs other modules beside torch."""

    code: str
    modules: tuple[str, ...] = ("torch",)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a program.

    Attributes:
        title: What it does.
        function: Name of the function that applies it, as those of `tracekit.recording.agent.changes`.
        code: What to write in the program instead.
        results: What it does to the numbers that the program computes.
        answers: Codes of the rules whose advice it follows.
        needs_device: Whether it does nothing without a GPU.
        fits: Whether it may have an effect, by the settings of the program that a run tells.
        fits_defaults: Whether it fits programs that leave the defaults of torch as they are, so most of them.
        alternates_on: Kinds of device on which it can be turned on and off between steps without a trace.
        alternates_in: Whether it can be so, by the settings of the program.
        starts_slowly: Whether a process first spends seconds on it, and so has turns of its own.
        file: The file of the function, which imports nothing of tracekit: the program may lack it.
        applies: The function itself, instead of its name and file.
        environment: Returns environment variables that the program is started with.
        edit: How to make it in the source, if that is one argument or one statement.
    """

    title: str
    function: str = ""
    code: str
    results: Results = "equal"
    answers: tuple[str, ...] = ()
    needs_device: bool = False
    fits: Callable[[Settings], bool] = lambda _: False
    fits_defaults: bool = False
    alternates_on: tuple[str, ...] = ()
    alternates_in: Callable[[Settings], bool] = lambda _: True
    starts_slowly: bool = False
    file: Path = Path(functions.__file__)
    environment: Callable[[], dict[str, str]] = dict
    edit: Argument | Statement | None = None
    applies: InitVar[Callable[..., None] | None] = None

    def __post_init__(self, applies: Callable[..., None] | None) -> None:
        if applies is not None:
            object.__setattr__(self, "function", applies.__name__)
            object.__setattr__(self, "file", Path(getfile(applies)))


def available() -> dict[str, Change]:
    """Return all changes by name.

    Example:
        >>> available()["zero_grad_to_none"].function
        'set_gradients_to_none'
    """
    return {name: registry.load(registry.CHANGES, name) for name in registry.names(registry.CHANGES)}


def locate(names: Iterable[str]) -> list[dict[str, str]]:
    """Return name, file and function of changes, as `agent.changes.apply_changes` takes them.

    Raises:
        UnusableInputError: There is no such change.
    """
    return [
        {"name": name, "file": str(change.file), "function": change.function}
        for name, change in ((name, find(name)) for name in names)
    ]


def environment(names: Iterable[str]) -> dict[str, str]:
    """Return the environment variables of changes.

    Raises:
        UnusableInputError: There is no such change.
    """
    return {key: value for name in names for key, value in find(name).environment().items()}


def find(name: str) -> Change:
    """Return a change by name.

    Raises:
        UnusableInputError: There is no such change.
    """
    known = available()
    if name not in known:
        hint = did_you_mean(name, known) or f"known: {', '.join(known)}"
        raise UnusableInputError(f"unknown change {name!r}", hint=hint)
    return known[name]


def _has_loader(settings: Settings, *, workers: bool) -> bool:
    loaders = settings.get("data_loaders", [])
    return any(bool(loader.get("num_workers")) == workers for loader in loaders)


def _has_slow_optimizer(settings: Settings) -> bool:
    optimizers = settings.get("optimizers", [])
    return any(not optimizer.get("foreach") and not optimizer.get("fused") for optimizer in optimizers)


def _has_mode(name: str) -> Callable[[Settings], bool]:
    return lambda settings: bool(settings.get("modes", {}).get(name))


def _threads(settings: Settings) -> int:
    return int(settings.get("threads", {}).get("intra_op", 0))


def is_inferring(settings: Settings) -> bool:
    """Whether a program computes outputs, and keeps what gradients would need."""
    modes = settings.get("modes", {})
    trains = bool(settings.get("optimizers")) or (modes.get("outermost_module") or {}).get("training", True)
    return not trains and bool(modes.get("grad")) and not modes.get("inference")


def _is_left_training(settings: Settings) -> bool:
    return not settings.get("optimizers") and bool(
        (settings.get("modes", {}).get("outermost_module") or {}).get("training")
    )


def _collects_much(settings: Settings) -> bool:
    """Whether Python looks for garbage more often than by default, or at many objects."""
    collector = settings.get("garbage_collector") or {}
    first = next(iter(collector.get("thresholds", ())), 0)
    often = 0 < first < _COLLECTOR_DEFAULT or collector.get("objects", 0) >= _MANY_OBJECTS
    return bool(collector.get("enabled")) and often


def _preload_malloc() -> dict[str, str]:
    """Return the variable that preloads another memory allocator, if one is installed."""
    libraries = filter(None, map(find_library, functions.MALLOCS))
    given = os.environ.get("LD_PRELOAD", "")
    library = next(libraries, None)
    return {"LD_PRELOAD": f"{library} {given}".strip()} if library else {}


def _bind_threads() -> dict[str, str]:
    """Return the variables with which OpenMP binds threads, unless the user has set them."""
    return {} if "OMP_PROC_BIND" in os.environ else {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}


def computes_in_float32(settings: Settings) -> bool:
    """Whether autocast is off."""
    return not settings.get("modes", {}).get("autocast") and bool(settings)


_OPTIMIZERS = (
    "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop",
)  # fmt: skip
_LOADERS, _DDP = ("DataLoader",), ("DistributedDataParallel", "DDP")
ZERO_GRAD_TO_NONE = Change(
    title="set gradients to None instead of filling them with zeros",
    applies=functions.set_gradients_to_none,
    code="optimizer.zero_grad(set_to_none=True)",
    answers=("zero_grad_per_parameter", "small_optimizer_kernels"),
    fits=lambda settings: bool(settings.get("optimizers")),
    fits_defaults=True,
    edit=Argument("set_to_none", "True", ("zero_grad",), 0),
    alternates_on=ANY_DEVICE,
)
FOREACH = Change(
    title="update all parameters in a few calls",
    applies=functions.use_foreach,
    code="torch.optim.AdamW(parameters, foreach=True)",
    results="rounding",
    answers=("small_optimizer_kernels", "optimizer_not_fused", "host_small_ops"),
    fits=_has_slow_optimizer,
    edit=Argument("foreach", "True", _OPTIMIZERS),
    alternates_on=ANY_DEVICE,
)
FUSED = Change(
    title="update parameters by fused kernels",
    applies=functions.use_fused,
    code="torch.optim.AdamW(parameters, fused=True)",
    results="rounding",
    answers=("small_optimizer_kernels", "optimizer_not_fused", "host_small_ops"),
    fits=_has_slow_optimizer,
    edit=Argument("fused", "True", _OPTIMIZERS),
    alternates_on=("cpu",),
)
NUM_WORKERS = Change(
    title="load batches in worker processes",
    applies=functions.load_in_workers,
    code="DataLoader(dataset, num_workers=4)",
    answers=("host_loading", "idle_dataload"),
    fits=lambda settings: _has_loader(settings, workers=False),
    edit=Argument("num_workers", "4", _LOADERS, 5),
)
PERSISTENT_WORKERS = Change(
    title="keep the workers of a loader between epochs",
    applies=functions.keep_workers,
    code="DataLoader(dataset, num_workers=4, persistent_workers=True)",
    answers=("workers_restarted", "host_loading"),
    fits=lambda settings: _has_loader(settings, workers=True),
    edit=Argument("persistent_workers", "True", _LOADERS),
)
PREFETCH_FACTOR = Change(
    title="prepare more batches ahead in each worker",
    applies=functions.prefetch_more,
    code=f"DataLoader(dataset, num_workers=4, prefetch_factor={functions.PREFETCHED_BATCHES})",
    answers=("host_loading", "idle_dataload"),
    fits=lambda settings: _has_loader(settings, workers=True),
    edit=Argument("prefetch_factor", str(functions.PREFETCHED_BATCHES), _LOADERS),
)
PIN_MEMORY = Change(
    title="return batches in pinned memory",
    applies=device_changes.pin_batches,
    code="DataLoader(dataset, pin_memory=True)",
    answers=("pageable_copies", "exposed_copies"),
    needs_device=True,
    fits=lambda settings: bool(settings.get("data_loaders")),
    edit=Argument("pin_memory", "True", _LOADERS, 7),
)
NON_BLOCKING = Change(
    title="copy from pinned memory without blocking the host",
    applies=device_changes.copy_asynchronously,
    code="batch.to(device, non_blocking=True)",
    answers=("exposed_copies", "copies_in_turn"),
    needs_device=True,
    edit=Argument("non_blocking", "True", ("to", "cuda")),
    alternates_on=ANY_DEVICE,
)
EXPANDABLE_SEGMENTS = Change(
    title="let the CUDA allocator grow segments instead of making new ones",
    applies=device_changes.grow_segments,
    code="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    answers=("allocator_churn", "unused_reserved_memory"),
    needs_device=True,
)
MATMUL_PRECISION = Change(
    title="compute products of float32 matrices with TensorFloat-32",
    applies=device_changes.use_fast_matmul,
    code='torch.set_float32_matmul_precision("high")',
    results="precision",
    answers=("fp32_without_tensor_cores",),
    needs_device=True,
    edit=Statement('torch.set_float32_matmul_precision("high")'),
    alternates_on=ANY_DEVICE,
)
CUDNN_BENCHMARK = Change(
    title="measure which algorithm of a convolution is the fastest",
    applies=device_changes.search_convolutions,
    code="torch.backends.cudnn.benchmark = True",
    results="rounding",
    needs_device=True,
    fits=bool,
    fits_defaults=True,
    edit=Statement("torch.backends.cudnn.benchmark = True"),
    alternates_on=ANY_DEVICE,
)
BUCKET_SIZE = Change(
    title="reduce more gradients of DistributedDataParallel at once",
    applies=device_changes.use_larger_buckets,
    code=f"DistributedDataParallel(model, bucket_cap_mb={device_changes.BUCKET_MB})",
    results="rounding",
    answers=("exposed_communication", "slow_collectives"),
    edit=Argument("bucket_cap_mb", str(device_changes.BUCKET_MB), _DDP),
)
STATIC_GRAPH = Change(
    title="let DistributedDataParallel plan its reductions once",
    applies=device_changes.keep_graph_static,
    code="DistributedDataParallel(model, static_graph=True)",
    results="rounding",
    answers=("exposed_communication", "slow_collectives"),
    edit=Argument("static_graph", "True", _DDP),
)
BUCKET_VIEWS = Change(
    title="let gradients be views of the buckets of DistributedDataParallel",
    applies=device_changes.view_gradients_in_buckets,
    code="DistributedDataParallel(model, gradient_as_bucket_view=True)",
    answers=("exposed_communication", "slow_collectives"),
    edit=Argument("gradient_as_bucket_view", "True", _DDP),
)
LOCAL_BUFFERS = Change(
    title="do not broadcast the buffers of a DistributedDataParallel module",
    applies=device_changes.keep_buffers_local,
    code="DistributedDataParallel(model, broadcast_buffers=False)",
    results="rounding",
    answers=("exposed_communication", "slow_collectives"),
    edit=Argument("broadcast_buffers", "False", _DDP),
)
MALLOC = Change(
    title="allocate host memory by jemalloc or tcmalloc, if one is installed",
    applies=functions.use_other_malloc,
    code="LD_PRELOAD=libjemalloc.so.2 python train.py",
    environment=_preload_malloc,
    fits=lambda settings: bool(settings) and bool(_preload_malloc()),
    fits_defaults=True,
)
ONE_THREAD = Change(
    title="compute each op in one thread",
    applies=functions.use_one_thread,
    code="torch.set_num_threads(1)",
    results="rounding",
    answers=("more_threads_than_cores", "host_small_ops"),
    fits=lambda settings: _threads(settings) > 1,
    edit=Statement("torch.set_num_threads(1)"),
    alternates_on=ANY_DEVICE,
)
ALL_CORES = Change(
    title="compute each op in a thread per core",
    applies=functions.use_all_cores,
    code="torch.set_num_threads(len(os.sched_getaffinity(0)))",
    results="rounding",
    fits=lambda settings: 0 < _threads(settings) < settings.get("threads", {}).get("affinity", 0),
    alternates_on=ANY_DEVICE,
)
FLUSH_DENORMALS = Change(
    title="replace the smallest numbers by zero",
    applies=functions.flush_denormals,
    code="torch.set_flush_denormal(True)",
    results="rounding",
    fits=lambda settings: settings.get("modes", {}).get("flush_denormals") is False,
    fits_defaults=True,
    edit=Statement("torch.set_flush_denormal(True)"),
    alternates_on=ANY_DEVICE,
    alternates_in=lambda settings: _threads(settings) <= 1,  # others keep what the first had at their start
)
NO_ANOMALY_DETECTION = Change(
    title="do not look for NaN in each backward op",
    applies=functions.turn_off_anomaly_detection,
    code="remove torch.autograd.set_detect_anomaly(True)",
    answers=("anomaly_detection",),
    fits=_has_mode("anomaly_detection"),
    edit=Argument("mode", "False", ("set_detect_anomaly", "detect_anomaly"), 0),
    alternates_on=ANY_DEVICE,
)
NONDETERMINISTIC = Change(
    title="allow algorithms that are not deterministic",
    applies=functions.allow_nondeterministic,
    code="remove torch.use_deterministic_algorithms(True)",
    results="rounding",
    fits=_has_mode("deterministic_algorithms"),
    edit=Argument("mode", "False", ("use_deterministic_algorithms",), 0),
    alternates_on=ANY_DEVICE,
)
LESS_GARBAGE_COLLECTION = Change(
    title="look for garbage less often",
    applies=functions.collect_garbage_less,
    code=f"gc.set_threshold({functions.COLLECTOR_THRESHOLD:_}, 20, 20)",
    answers=("host_garbage_collection",),
    fits=_collects_much,
    edit=Statement(f"gc.set_threshold({functions.COLLECTOR_THRESHOLD:_}, 20, 20)", ("gc",)),
)
COMPILE = Change(
    title="compile the model",
    applies=model_changes.compile_model,
    code="model = torch.compile(model)",
    results="rounding",
    answers=("launch_bound_steps", "idle_launch_bound", "small_elementwise_kernels", "unfused_elementwise",
             "host_small_ops"),
    alternates_on=ANY_DEVICE,
    starts_slowly=True,
)  # fmt: skip
REDUCE_OVERHEAD = Change(
    title="compile the model, and launch its kernels as CUDA graphs",
    applies=model_changes.replay_compiled_model,
    code='model = torch.compile(model, mode="reduce-overhead")',
    results="rounding",
    answers=("launch_bound_steps", "idle_launch_bound"),
    needs_device=True,
)
EVALUATION_MODE = Change(
    title="put the model into evaluation mode",
    applies=model_changes.evaluate_model,
    code="model.eval()",
    results="precision",
    answers=("batch_norm_training",),
    fits=_is_left_training,
    alternates_on=ANY_DEVICE,
)
BFLOAT16 = Change(
    title="compute in bfloat16 where that is safe (autocast)",
    applies=model_changes.compute_in_bfloat16,
    code='with torch.autocast(device_type="cuda", dtype=torch.bfloat16): output = model(batch)',
    results="precision",
    answers=("fp32_without_tensor_cores", "eager_attention"),
    fits=computes_in_float32,
    fits_defaults=True,
    alternates_on=ANY_DEVICE,
)
INFERENCE_MODE = Change(
    title="run the model in inference mode",
    applies=model_changes.infer_without_gradients,
    code="with torch.inference_mode(): output = model(batch)",
    fits=is_inferring,
    alternates_on=ANY_DEVICE,
)
CHANNELS_LAST = Change(
    title="store the weights of convolutions with channels last",
    applies=model_changes.use_channels_last,
    code="model = model.to(memory_format=torch.channels_last)",
    results="rounding",
    answers=("layout_conversions", "host_layout_copies"),
)
FREEZE_OBJECTS = Change(
    title="let the garbage collector pass over the objects that exist when the first step begins",
    applies=functions.freeze_objects,
    code="gc.collect(); gc.freeze()",
    answers=("host_garbage_collection",),
    fits=_collects_much,
)
BOUND_THREADS = Change(
    title="bind the threads of ops to cores",
    applies=functions.bind_threads,
    code="OMP_PROC_BIND=close OMP_PLACES=cores python train.py",
    environment=_bind_threads,
    fits=lambda settings: _threads(settings) > 1 and bool(_bind_threads()),
)
NO_PROFILERS = Change(
    title="leave out profilers of torch that the program starts",
    applies=functions.skip_profilers,
    code="remove torch.profiler.profile(...)",
)
