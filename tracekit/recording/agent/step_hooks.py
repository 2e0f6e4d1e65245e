"""Detect steps of a program: of its first optimizer, or calls of its first module or of a named function.

Also mark its ops, for a torch that cannot, and follow the end of its process.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

from .device import is_capturing
from .settings import name_script, optimizer_steps

MAX_OTHER_STEPS = 100
"""Steps of other optimizers after which the first one counts as no longer used."""
_CALL = "__call__"

OPTIMIZER, CALL, MARKED, FUNCTION, NONE = "optimizer", "call", "marked", "function", "none"
"""Sources of steps: the first optimizer, calls of the first module, marks, a named function, or none."""


def describe_step(source: str, name: str) -> str:
    """Return what a step is, to follow "A step ".

    Args:
        source: Source of the steps.
        name: Class of the optimizer or of the module, or the function as the user names it.

    Example:
        >>> describe_step(OPTIMIZER, "SGD")
        'ends with step() of SGD, the first optimizer'
    """
    return {
        OPTIMIZER: f"ends with step() of {name}, the first optimizer",
        CALL: f"is a call of {name}, the first module that was called",
        FUNCTION: f"is a call of {name} (--step-on)",
    }.get(source, "ends with a call of tracekit.step()")


def watch_optimizers(torch: Any, *, made: Callable[[], None], stepped: Callable[[str], None]) -> None:
    """Report optimizers that are made from now on, and the steps of the first.

    With several optimizers, as in a GAN, a step of the first one is a round of all. `step` is wrapped outside
    its hooks: a profiler step that ended in a hook would split torch's own annotation of the optimizer step.

    Args:
        torch: The program's torch.
        made: Called when an optimizer is made.
        stepped: Called after each step of the first optimizer, with the name of its class.
    """
    optimizer_class, rounds = torch.optim.Optimizer, _Rounds(stepped)
    original = optimizer_class._patch_step_function

    @functools.wraps(original)
    def patch(self: Any) -> None:
        original(self)
        if not getattr(type(self).step, "tracekit", False):
            # what follows the steps is no part of what the program compiles
            type(self).step = rounds.wrap(type(self).step, torch.compiler.disable(rounds.report))
        made()

    optimizer_class._patch_step_function = patch


class _Rounds:
    """Separate steps of the first optimizer from those of others."""

    def __init__(self, stepped: Callable[[str], None]) -> None:
        self._stepped = stepped
        self._first: Callable[[], Any] = lambda: None
        self._inside = False
        self._others = 0

    def wrap(self, step: Any, report: Callable[[Any], None]) -> Any:
        """Return a `step` that is reported if it succeeds; a nested one is part of the outer one."""

        @functools.wraps(step)
        def wrapped(optimizer: Any, *arguments: Any, **options: Any) -> Any:
            if self._inside:
                return step(optimizer, *arguments, **options)
            self._inside = True
            try:
                result = step(optimizer, *arguments, **options)
            finally:
                self._inside = False
            report(optimizer)
            return result

        wrapped.tracekit = True  # type: ignore[attr-defined]
        return wrapped

    def report(self, optimizer: Any) -> None:
        """Count a step of an optimizer, which ends a round if it is the first one."""
        optimizer_steps[id(optimizer)] += 1
        first = self._first()
        if first is not optimizer and (first is None or self._others >= MAX_OTHER_STEPS):
            self._first = weakref.ref(optimizer)
            first = optimizer
        self._others = 0 if first is optimizer else self._others + 1
        if first is optimizer:
            self._stepped(type(optimizer).__name__)


class ModuleCalls:
    """Report the first call of any module, and then the calls of that module.

    torch's own hooks cannot be used: global hooks break a first call that is being compiled, and a hook on
    the module would be saved with it. So `__call__` is replaced: on the base class until the first call
    begins, then on the class of that module, until `stop`. Compiled code uses the original. Calls that are
    captured into a CUDA graph are not executed, and are not reported.

    Args:
        torch: The program's torch.
        begun: Called with the name of the class when the first call begins; returns whether to report this
            and later calls.
        ended: Called after each call that succeeds.
    """

    def __init__(self, torch: Any, *, begun: Callable[[str], bool], ended: Callable[[], None]) -> None:
        self._begun, self._ended, compiling = begun, ended, torch.compiler.is_compiling
        # in this order: Dynamo evaluates only the first while it compiles
        self._unseen: Callable[[], bool] = lambda: compiling() or is_capturing(torch)
        self._replaced: tuple[Any, Any, Any] | None = None
        self._replace(torch.nn.Module, self._first_call)

    def stop(self) -> None:
        """Restore the original call."""
        if self._replaced is None:
            return
        (owner, original, replacement), self._replaced = self._replaced, None
        if owner.__dict__.get(_CALL) is not replacement:  # replaced by others too, who will restore ours
            return
        if original is None:
            delattr(owner, _CALL)
        else:
            setattr(owner, _CALL, original)

    def _replace(self, owner: Any, wrap: Callable[[Any], Any]) -> None:
        original, replacement = owner.__dict__.get(_CALL), wrap(getattr(owner, _CALL))
        setattr(owner, _CALL, replacement)
        self._replaced = owner, original, replacement

    def _first_call(self, original: Any) -> Any:
        unseen, state = self._unseen, {"first": True}

        @functools.wraps(original)
        def wrapped(module: Any, *arguments: Any, **options: Any) -> Any:
            if unseen() or not state["first"]:
                return original(module, *arguments, **options)
            state["first"] = False
            self.stop()
            if not self._begun(type(module).__name__):
                return original(module, *arguments, **options)
            self._replace(type(module), lambda call: self._later_calls(call, module))
            result = original(module, *arguments, **options)
            self._ended()
            return result

        return wrapped

    def _later_calls(self, original: Any, first: Any) -> Any:
        unseen = self._unseen

        @functools.wraps(original)
        def wrapped(module: Any, *arguments: Any, **options: Any) -> Any:
            result = original(module, *arguments, **options)
            if module is first and not unseen():
                self._ended()
            return result

        return wrapped


MAIN = "__main__"
MAX_LINES = 100_000
"""Lines and calls of a script after which its function is no longer waited for."""
_SCRIPT = "<module>"  # name of the code of a script outside of its functions


class StepFunction:
    """The function or method whose calls are steps, as the user names it.

    A module is changed as soon as it has been imported. The function of a script exists only once its
    definition has run, so the script is watched until then.

    Args:
        text: Module and function or method, as in `train:Trainer.update`.
        began: Called before each call.
        ended: Called after each call that succeeds; a nested call is part of the outer one.
    """

    def __init__(self, text: str, *, began: Callable[[], None], ended: Callable[[], None]) -> None:
        self.module, _, path = text.partition(":")
        self._path = path.split(".")
        self._began, self._ended, self._inside = began, ended, False

    def replace_in(self, module: Any) -> bool:
        """Wrap the function in its module; return whether the module has it."""
        owner = module
        for name in self._path[:-1]:
            owner = getattr(owner, name, None)
        original = vars(owner).get(self._path[-1]) if hasattr(owner, "__dict__") else None
        plain = original.__func__ if isinstance(original, staticmethod | classmethod) else original
        if not callable(plain):
            return False
        wrapped: Any = self._wrap(plain)
        if plain is not original:
            wrapped = type(original)(wrapped)  # type: ignore[misc]  # static or of the class
        setattr(owner, self._path[-1], wrapped)
        return True

    def wait_in_script(self) -> None:
        """Wait for the definition if the function is one of the script, also by the script's own name.

        Each line of the script is looked at, since the one after the definition may call it; under a debugger
        or coverage, which have to trace lines themselves, only calls from the script.
        """
        script = sys.modules[MAIN]
        if self.module not in {MAIN, name_script()} or self.replace_in(script):
            return
        watch = sys.setprofile if sys.gettrace() else sys.settrace
        if watch is sys.setprofile and sys.getprofile():
            return
        names, seen = vars(script), 0

        def look(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal seen
            caller = frame.f_back
            if frame.f_globals is not names and (caller is None or caller.f_globals is not names):
                return None
            seen += 1
            if self.replace_in(script) or seen > MAX_LINES:
                watch(None)
                return None
            return look if frame.f_code.co_name == _SCRIPT else None

        outer: FrameType | None = sys._getframe()
        while outer is not None and watch is sys.settrace:
            if outer.f_globals is names and outer.f_code.co_name == _SCRIPT:
                outer.f_trace = look
            outer = outer.f_back
        watch(look)

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waited(*arguments: Any, **named: Any) -> Any:
                outer = self._begin()
                try:
                    result = await function(*arguments, **named)
                finally:
                    self._inside = not outer
                self._end(outer=outer)
                return result

            return waited

        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            outer = self._begin()
            try:
                result = function(*arguments, **named)
            finally:
                self._inside = not outer
            self._end(outer=outer)
            return result

        return wrapped

    def _begin(self) -> bool:
        outer, self._inside = not self._inside, True
        if outer:
            self._began()
        return outer

    def _end(self, *, outer: bool) -> None:
        if outer:
            self._ended()


def ranges_of_ops(torch: Any) -> Any:
    """Return a context that marks each op with a range of the package `nvtx`, as `emit_nvtx` of torch does.

    A torch for the CPU lacks NVTX. Each op costs some microseconds of Python, and what torch.compile made
    would not run as compiled inside the context: a program that has compiled gets none.

    Raises:
        ImportError: The package is not installed, or the program compiles.
    """
    nvtx: Any = import_module("nvtx")
    compiled = sys.modules.get("torch._dynamo.utils")
    if compiled is not None and compiled.counters["frames"]:
        raise ImportError("the program compiles")

    class Ranges(import_module("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        """Ranges with names, numbers and shapes that the importer of Nsight Systems reads as ops."""

        number = 0

        def __torch_dispatch__(self, op: Any, _types: Any, args: Any = (), named: Any = None) -> Any:
            if op.namespace == "profiler":  # of ranges of torch itself
                return op(*args, **(named or {}))
            self.number += 1
            sizes = [[*value.shape] if isinstance(value, torch.Tensor) else [] for value in args]
            nvtx.push_range(f"{op._schema.name}, op_id = {self.number}, sizes = {sizes}")
            try:
                return op(*args, **(named or {}))
            finally:
                nvtx.pop_range()

    return Ranges()


def is_worker() -> bool:
    """Return whether `multiprocessing` started this process, as it does for data loader workers."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def before_signals(finish: Callable[[int], None]) -> None:
    """Call `finish` before a request to end ends this process, unless the program handles it itself."""
    if threading.current_thread() is not threading.main_thread():
        return
    owner = os.getpid()

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == owner:
            finish(128 + number)
        os.kill(os.getpid(), number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def at_exit(finish: Callable[[int | None], None]) -> None:
    """Call `finish` at the end of this process, also if `multiprocessing` forked it, which skips atexit."""
    owner = os.getpid()

    def once() -> None:
        if os.getpid() == owner:
            finish(_code_of_exception())

    if is_worker():
        from multiprocessing.util import Finalize

        Finalize(None, once, exitpriority=100)
    atexit.register(once)


def _code_of_exception() -> int | None:
    """Return the exit code after an uncaught exception; that of another end is not known yet: None."""
    error = getattr(sys, "last_value", None)
    return None if error is None else 130 if isinstance(error, KeyboardInterrupt) else 1
