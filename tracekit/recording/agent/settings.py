"""Settings of the program that its speed depends on: threads, modes of torch, data loaders and optimizers.

They are read once, after the recording, as are the environment and the job of its process. Imports nothing of
tracekit, as the other modules of the agent.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from zlib import crc32

from . import changes
from .cpu_load import describe_cpus
from .stack_sampler import is_of_program

MAX_LISTED = 8
"""Data loaders and optimizers that are listed."""
MAX_GUARD = 120
"""Characters of a guard that are kept."""
SCRIPT = "script"
optimizer_steps: Counter[int] = Counter()
"""Steps of each optimizer since the profiled steps began, by its `id`."""
AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")


def read_settings(torch: Any, steps: int = 0) -> dict[str, Any]:
    """Return the settings of the program in the state of the calling thread; unknown ones are missing.

    Args:
        torch: The program's torch.
        steps: Steps that were profiled.
    """
    tracked = gc.get_objects()
    objects, count = _find_objects(torch, tracked), len(tracked)
    del tracked
    readers: dict[str, Callable[[], Any]] = {
        SCRIPT: name_script,
        "threads": lambda: _read_threads(torch),
        "modes": lambda: _read_modes(torch, objects["modules"]),
        "data_loaders": lambda: _describe_loaders(objects["loaders"], objects["iterators"]),
        "garbage_collector": lambda: _read_collector(count),
        "recompilations": _read_recompilations,
        "changes": lambda: dict(changes.counts) or None,
        "change_places": lambda: dict(changes.places) or None,
        "alternation": lambda: next((one.facts() for one in changes.alternations), None),
        "optimizers": lambda: [
            _describe_optimizer(item, steps) for item in objects["optimizers"][:MAX_LISTED]
        ],
    }
    return _read_each(readers)


def name_script() -> str | None:
    """Return the module or the script of this process, whatever launched it; None for code without a file.

    Of tests it is the file and the test, of a notebook its file: one program runs them all.
    """
    main = sys.modules["__main__"]
    test = os.environ.get("PYTEST_CURRENT_TEST")
    if test and "_pytest" in sys.modules:  # else the test runs this process
        file, _, name = test.rpartition(" ")[0].partition("::")
        return f"{Path(file).stem}::{name}"
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if "ipykernel" in sys.modules and path is None:
        return _name_notebook()
    if spec is not None and not spec.name.startswith("__"):
        return str(spec.name).removesuffix(".__main__")
    return Path(path).stem if path else None


def _name_notebook() -> str | None:
    """Return the name of the notebook of this kernel, from its server or the command that executes it."""
    with suppress(OSError):
        command = Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace").split("\0")
        for path in (os.environ.get("JPY_SESSION_NAME", ""), *command):
            if path.endswith(".ipynb"):
                return Path(path).stem
    return None


def _read_each(readers: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return what can be read, without None and empty lists."""
    values = {}
    for name, read in readers.items():
        with suppress(Exception):  # of datasets and other code of the program
            value = read()
            if value is not None and value != []:
                values[name] = value
    return values


def _find_objects(torch: Any, tracked: list[Any]) -> dict[str, list[Any]]:
    """Find the modules, data loaders, iterators of loaders, and optimizers among the objects of this process.

    `type` is asked, not `isinstance`, which would let proxies of the program load what they stand for.
    """
    loading: Any = sys.modules.get("torch.utils.data.dataloader")
    wanted = {"modules": torch.nn.Module, "optimizers": torch.optim.Optimizer}
    if loading is not None:
        wanted |= {"loaders": loading.DataLoader, "iterators": loading._BaseDataLoaderIter}
    name_of_type: dict[type, str] = {}
    objects: dict[str, list[Any]] = {"modules": [], "loaders": [], "iterators": [], "optimizers": []}
    for item in tracked:
        kind = type(item)
        name = name_of_type.get(kind)
        if name is None:
            name = next((name for name, base in wanted.items() if issubclass(kind, base)), "")
            name_of_type[kind] = name
        if name:
            objects[name].append(item)
    return objects


def _read_threads(torch: Any) -> dict[str, Any]:
    """Return torch's threads, and the cores that this process may use."""
    readers: dict[str, Callable[[], Any]] = {
        "intra_op": torch.get_num_threads,
        "inter_op": torch.get_num_interop_threads,
        "python": lambda: 1 + sum(map(is_of_program, threading.enumerate())),
    }
    return {**_read_each(readers), **describe_cpus()}


def _read_collector(count: int) -> dict[str, Any]:
    """Return whether Python collects by itself, from how many objects on, and how many it looks at."""
    return {
        "enabled": gc.isenabled(),
        "thresholds": list(gc.get_threshold()),
        "objects": count,
        "frozen_objects": gc.get_freeze_count(),
    }


def _read_modes(torch: Any, modules: list[Any]) -> dict[str, Any]:
    """Return the modes of torch that are on for the calling thread, and of the outermost module."""
    readers: dict[str, Callable[[], Any]] = {
        "anomaly_detection": torch.is_anomaly_enabled,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "grad": torch.is_grad_enabled,
        "inference": torch.is_inference_mode_enabled,
        "autocast": lambda: list(_active_autocasts(torch)),
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "flush_denormals": lambda: sys.float_info.min / 2 == 0.0,  # torch cannot be asked
        "outermost_module": lambda: _describe_outermost(modules),
    }
    return _read_each(readers)


def _active_autocasts(torch: Any) -> Iterator[str]:
    for device in AUTOCAST_DEVICES:
        with suppress(RuntimeError):  # a device of which this torch has no autocast
            if torch.is_autocast_enabled(device):
                yield f"{device} {torch.get_autocast_dtype(device)}".replace("torch.", "")


def _describe_outermost(modules: list[Any]) -> dict[str, Any] | None:
    """Describe the module with most parameters among those that are in no other."""
    inner = {id(child) for module in modules for child in vars(module).get("_modules", {}).values()}
    outermost = [module for module in modules if id(module) not in inner]
    if not outermost:
        return None
    largest = max(outermost, key=lambda module: len(list(module.parameters())))
    return {"class": type(largest).__name__, "training": bool(largest.training)}


def _describe_loaders(loaders: list[Any], iterators: list[Any]) -> list[dict[str, Any]]:
    """Describe loaders; of `for batch in DataLoader(...)`, only the iterator is left."""
    described = {id(loader.dataset): _describe_loader(loader, "") for loader in loaders}
    alone = [iterator for iterator in iterators if id(iterator._dataset) not in described]
    return [*described.values(), *(_describe_loader(iterator, "_") for iterator in alone)][:MAX_LISTED]


def _describe_loader(loader: Any, prefix: str) -> dict[str, Any]:
    """Describe a loader, or its iterator, which has the same attributes with a prefix."""

    def get(name: str) -> Any:
        return getattr(loader, prefix + name)

    return _read_each(
        {
            "dataset": lambda: type(get("dataset")).__name__,
            "samples": lambda: len(get("dataset")),
            "collate": lambda: _name_function(get("collate_fn")),
            **{name: partial(get, name) for name in _LOADER_ATTRIBUTES},
        }
    )


def _read_recompilations() -> list[dict[str, Any]]:
    """Return the functions that were compiled again: how often, the last guard that failed, and the limit."""
    compiled: Any = sys.modules.get("torch._dynamo.utils")
    functions: dict[str, dict[str, Any]] = {}
    last: dict[str, Any] = {}
    for metrics in compiled.get_compilation_metrics() if compiled else ():
        if metrics.recompile_reason is None:
            continue
        if metrics.co_name is not None:
            place = f"{Path(metrics.co_filename).name}({metrics.co_firstlineno}): {metrics.co_name}"
            last = functions.setdefault(place, {"function": place, "recompilations": 0})
            last["recompilations"] += 1
            last["guard"] = _read_guard(metrics.recompile_reason)
        elif "recompile limit" in str(metrics.fail_reason):  # of which only the reason is known
            last["limit_reached"] = True
    return list(functions.values())[:MAX_LISTED]


def _read_guard(reason: str) -> str:
    """Return the guard in a reason such as `0/7: self.mode == 'm7'   # if self.mode: ...  # net.py:8`."""
    return re.split(r"\s{2,}#", re.sub(r"^\d+/\d+: ", "", reason).splitlines()[0])[0][:MAX_GUARD].strip()


_LOADER_ATTRIBUTES = ("batch_size", "num_workers", "persistent_workers", "prefetch_factor", "pin_memory")


def _name_function(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", None) or ""
    return name if module in ("", "__main__") else f"{module}.{name}"


def _describe_optimizer(optimizer: Any, steps: int) -> dict[str, Any]:
    parameters = [item for group in optimizer.param_groups for item in group["params"]]
    switches = [name for name in ("foreach", "fused") if optimizer.param_groups[0].get(name) is not None]
    stepped = round(optimizer_steps[id(optimizer)] / steps, 2) if steps else 0.0
    return {
        "class": type(optimizer).__name__,
        **{name: bool(optimizer.param_groups[0][name]) for name in switches},
        "tensors": len(parameters),
        "elements": sum(item.numel() for item in parameters),
        "sparse_gradients": sum(item.grad is not None and item.grad.is_sparse for item in parameters),
        **({"steps_per_profiled_step": int(stepped) if stepped.is_integer() else stepped} if steps else {}),
    }


_JOB_VARIABLES = (
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "PMI_JOBID"),
)
"""Variables with which launchers tell the ranks of one job from those of another."""


def hash_job() -> str:
    """Return what is equal in all ranks of a job, as a short hash."""
    return f"{crc32(repr([os.environ.get(name, '') for name in _JOB_VARIABLES]).encode()):08x}"


def capture_environment() -> dict[str, Any]:
    """Return `tracekit.runs.environment.capture()`, loaded from its file: tracekit may not be installed."""
    path = Path(__file__).parents[2] / "runs" / "environment.py"
    spec: Any = spec_from_file_location(f"{__package__}.environment", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.capture())
