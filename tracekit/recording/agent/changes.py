"""Changes of a recorded program that may make it faster, applied inside of it without an edit.

Each function takes the program's torch, before the program uses it, and `applied`, which it calls whenever
the change takes effect: a change that finds nothing to change, because the program has no data loader or sets
the argument itself, is reported as not applied. One that can be turned on and off between steps
asks `applied.is_on`, or passes a function to `applied.follow`. `tracekit.recording.changes` describes the
functions. Imports nothing of tracekit, as the other modules of the agent.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any
from weakref import ref

from .alternation import Alternation, Applied
from .model_changes import change_model, forget_changes

MAX_WORKERS = 4
PREFETCHED_BATCHES = 8
MALLOCS = ("jemalloc", "tcmalloc")
COLLECTOR_THRESHOLD = 100_000
"""New objects from which Python's garbage collector runs; its default is 700 or 2,000."""

LOADER_WORKER = "torch.utils.data._utils.worker"
"""Module in which the workers of data loaders set their threads."""

_FOLDER = os.path.dirname(__file__)  # noqa: PTH120

counts: dict[str, int] = {}
"""How often each requested change took effect, by its name."""
places: dict[str, str] = {}
"""Where each requested change took effect first, as file:line of the program."""
alternations: list[Alternation] = []
"""The alternation of the requested changes, if they take turns."""


def apply_changes(torch: Any, changes: list[dict[str, str]], *, steps: int = 0, seed: str = "") -> None:
    """Apply changes to the program of this process.

    Args:
        torch: The program's torch.
        changes: Of each change its name, and the file and the name of its function.
        steps: Steps of the program in which the changes take turns, and are off afterwards; 0 if they are on.
        seed: Decides the order in which they take turns.
    """
    libraries = (os.path.dirname(torch.__file__), _FOLDER, "<frozen ")  # noqa: PTH120
    forget_changes()
    all_applied = []
    for change in changes:
        name = change["name"]
        counts[name] = 0
        applied = Applied(name, partial(_count, name, libraries), is_on=not steps)
        _load_function(change)(torch, applied)
        all_applied.append(applied)
    alternations[:] = [Alternation(torch, all_applied, steps, seed=seed)] if steps else []


def end_step() -> None:
    """Tell the alternation, if there is one, that a step of the program has ended."""
    for alternation in alternations:
        alternation.end_step()


def begin_turns() -> None:
    """Let changes that take turns do so from the next step on, as if it were the first."""
    for alternation in alternations:
        alternation.begin()


def end_turns() -> None:
    """Turn changes that take turns off."""
    for alternation in alternations:
        alternation.end()


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
    folder, file = os.path.split(change["file"])
    if folder == _FOLDER:
        own = import_module(f".{file.removesuffix('.py')}", __package__)
        return getattr(own, change["function"])  # type: ignore[no-any-return]
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
        if not set_to_none and applied.is_on:
            applied()
        original(self, set_to_none=set_to_none or applied.is_on)

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
        # The state that fused kernels keep on a device is made there from the first step on, or not at all.
        is_late = name == "fused" and not on_cpu and not applied.is_on
        if name in defaults and not is_set and not is_default and not is_late:
            applied()
            applied.follow(partial(_choose_value, ref(self), name, []))

    torch.optim.Optimizer.__init__ = init


def _choose_value(made: Any, name: str, former: list[Any], on: bool) -> None:  # noqa: FBT001
    """Set an argument of an optimizer to True, in the groups that it has now, or as it was.

    Args:
        made: Weak reference to the optimizer: the program may be done with it.
        name: Name of the argument.
        former: Its values while it is True, of the defaults and of each group.
        on: Whether to set it.
    """
    if (optimizer := made()) is None:
        return
    groups = (optimizer.defaults, *optimizer.param_groups)
    for options, value in zip(groups, former, strict=False):  # the program may have added groups
        options[name] = value
    former[:] = [options.get(name) for options in groups] if on else []
    for options, _ in zip(groups, former, strict=False):
        options[name] = True


def load_in_workers(torch: Any, applied: Applied) -> None:
    """Load batches in processes of their own, where a loader has none; iterable data would be repeated."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        is_iterable = isinstance(arguments["dataset"], torch.utils.data.IterableDataset)
        if arguments["num_workers"] or is_iterable:
            return {}
        return {"num_workers": max(1, min(MAX_WORKERS, len(os.sched_getaffinity(0))))}

    set_arguments(torch.utils.data.DataLoader, choose, applied)


def keep_workers(torch: Any, applied: Applied) -> None:
    """Keep the workers of a loader between epochs."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        is_useful = arguments["num_workers"] and not arguments["persistent_workers"]
        return {"persistent_workers": True} if is_useful else {}

    set_arguments(torch.utils.data.DataLoader, choose, applied)


def prefetch_more(torch: Any, applied: Applied) -> None:
    """Let each worker of a loader prepare more batches ahead."""

    def choose(arguments: dict[str, Any]) -> dict[str, Any]:
        is_useful = arguments["num_workers"] and (arguments["prefetch_factor"] or 2) < PREFETCHED_BATCHES
        return {"prefetch_factor": PREFETCHED_BATCHES} if is_useful else {}

    set_arguments(torch.utils.data.DataLoader, choose, applied)


def use_other_malloc(_: Any, applied: Applied) -> None:
    """Count whether the memory allocator that the change preloads is in use."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        if any(name in line for line in maps for name in MALLOCS):
            applied()


def set_arguments(owner: type, choose: Callable[[dict[str, Any]], dict[str, Any]], applied: Applied) -> None:
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
    original, wanted = torch.set_num_threads, torch.get_num_threads()
    plain = inspect.unwrap(original)  # without what the other change of threads makes of it

    @functools.wraps(original)
    def set_threads(number: int) -> None:
        nonlocal wanted
        if sys._getframe(1).f_globals.get("__name__") == LOADER_WORKER:
            plain(number)
            return
        original(number)
        wanted = number
        if number != count:
            applied()
        if applied.is_on:
            plain(count)

    def turn(on: bool) -> None:  # noqa: FBT001
        number = count if on else wanted
        if torch.get_num_threads() != number:
            plain(number)

    torch.set_num_threads = set_threads
    if wanted != count:
        applied()
    applied.follow(turn)


def flush_denormals(torch: Any, applied: Applied) -> None:
    """Replace the smallest numbers, whose arithmetic is slow on most CPUs, by zero."""
    original, wanted = torch.set_flush_denormal, False
    if not original(applied.is_on):  # the processor cannot
        return
    applied()

    @functools.wraps(original)
    def set_flush(mode: bool) -> bool:  # noqa: FBT001 (as torch's)
        nonlocal wanted
        wanted = mode
        return bool(original(mode or applied.is_on))

    torch.set_flush_denormal = set_flush
    applied.follow(lambda on: original(on or wanted))


def turn_off_anomaly_detection(torch: Any, applied: Applied) -> None:
    """Ignore requests to look for NaN in each backward op."""
    _ignore_switch(torch, "set_anomaly_enabled", applied)


def allow_nondeterministic(torch: Any, applied: Applied) -> None:
    """Ignore requests to use deterministic algorithms."""
    _ignore_switch(torch, "use_deterministic_algorithms", applied)


def _ignore_switch(torch: Any, name: str, applied: Applied) -> None:
    original = getattr(torch, name)
    asked: list[partial[None]] = []

    @functools.wraps(original)
    def switch(mode: bool, *arguments: Any, **options: Any) -> None:  # noqa: FBT001 (as torch's)
        asked[:] = [partial(original, mode, *arguments, **options)]
        if mode:
            applied()
        original(mode and not applied.is_on, *arguments, **options)

    def turn(on: bool) -> None:  # noqa: FBT001
        for repeat in asked:
            original(False) if on else repeat()  # noqa: FBT003

    setattr(torch, name, switch)
    applied.follow(turn)


def collect_garbage_less(torch: Any, applied: Applied) -> None:
    """Let Python look for garbage less often."""

    def raise_threshold(_: Any) -> None:
        threshold, *others = gc.get_threshold()
        if gc.isenabled() and 0 < threshold < COLLECTOR_THRESHOLD:
            gc.set_threshold(COLLECTOR_THRESHOLD, *others)
            applied()

    change_model(torch, raise_threshold)


def freeze_objects(torch: Any, applied: Applied) -> None:
    """Let Python's garbage collector pass over the objects that exist before the first call of a model."""

    def freeze(_: Any) -> None:
        if gc.isenabled() and not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
            applied()

    change_model(torch, freeze)


def bind_threads(_: Any, applied: Applied) -> None:
    """Count whether OpenMP binds its threads to cores, as the variables of the change ask for."""
    if os.environ.get("OMP_PROC_BIND") == "close":
        applied()


def skip_profilers(torch: Any, applied: Applied) -> None:
    """Let profilers of torch that the program starts record nothing; not that of the recording."""
    owner, none = torch.profiler.profile, torch.profiler.ProfilerAction.NONE
    original = owner.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        bound = signature.bind(self, *arguments, **options)
        if not sys._getframe(1).f_code.co_filename.startswith(_FOLDER):
            bound.arguments["schedule"] = lambda _: none
            applied()
        original(*bound.args, **bound.kwargs)

    owner.__init__ = init
