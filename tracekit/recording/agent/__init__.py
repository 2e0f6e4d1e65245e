"""Agent inside a recorded program: detects its steps and records a window of them with torch.profiler.

`tracekit collect -- python train.py` puts the folder `startup` on PYTHONPATH. Every Python of the program,
also if a launcher such as torchrun starts it, then imports the `sitecustomize` in it, which loads this
package. The environment of that Python may lack tracekit, so these modules import only the standard library,
torch, and each other, relatively. The agent waits until the program imports torch, and records only processes
that step. `tracekit.record` uses the same recorder and window in the user's own process.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from .agent import Agent, AgentRequest
    from .step_hooks import StepFunction

VARIABLE = "TRACEKIT_AGENT"
"""Environment variable with the request; `startup/sitecustomize.py` spells it and the next name again."""
MODULE_NAME = "_tracekit_agent"
"""Name of this package in a recorded program."""
STARTUP = Path(__file__).parent / "startup"

_agent: Agent | None = None


def environment_with_agent(request: dict[str, Any], environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a program that is to be recorded.

    Args:
        request: The fields of `agent.AgentRequest`, and all options by name.
        environment: Environment of the program without a recording.
    """
    paths = [str(STARTUP), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, VARIABLE: json.dumps(request), "PYTHONPATH": os.pathsep.join(paths)}


def begin(request: str) -> None:
    """Attach an agent as soon as this process imports torch; called once, before the program.

    Args:
        request: An `agent.AgentRequest` in JSON.
    """
    values = json.loads(request)
    function = _follow_function(values["step_on"]) if values["step_on"] else None
    sys.meta_path.insert(0, _ImportHook("torch", lambda torch: _attach(torch, values, function)))


def _follow_function(text: str) -> StepFunction:
    """Wrap the function whose calls are steps as soon as its module is imported."""
    from .step_hooks import MAIN, StepFunction

    function = StepFunction(
        text,
        began=lambda: _agent.function_called() if _agent else None,
        ended=lambda: _agent.function_returned() if _agent else None,
    )
    if function.module != MAIN:
        sys.meta_path.insert(0, _ImportHook(function.module, function.replace_in))
    return function


def step() -> None:
    """Mark the end of a step of the recorded program."""
    if _agent is not None:
        _agent.step_marked()


def program_step() -> bool:
    """Mark a step if this process belongs to a recorded program; returns whether it does."""
    module = sys.modules.get(MODULE_NAME)
    if module is None:
        return False
    module.step()
    return True


def _attach(torch: Any, values: dict[str, Any], function: StepFunction | None) -> None:
    global _agent
    if not os.path.isdir(values["directory"]):  # noqa: PTH112 (a process that outlives its recording)
        return
    from .agent import Agent, AgentRequest
    from .changes import apply_changes
    from .step_hooks import watch_optimizers

    request = AgentRequest.of(values)
    steps = max(1, request.start_step - 1) if request.alternate else 0
    apply_changes(torch, request.changes, steps=steps, seed=request.directory)
    _agent = Agent(torch, request)
    if function is not None:
        function.wait_in_script()
    watch_optimizers(
        torch,
        made=lambda: _agent.optimizer_made() if _agent else None,
        stepped=lambda name: _agent.optimizer_stepped(name) if _agent else None,
    )
    os.register_at_fork(after_in_child=lambda: _after_fork(torch, request))


def _after_fork(torch: Any, request: AgentRequest) -> None:
    """Start again in a forked process; where a profiler has run, whose thread the fork lost, time it only."""
    global _agent
    from .agent import Agent
    from .changes import begin_turns
    from .recorder import TorchRecorder

    if _agent is not None:
        _agent.quit()
        begin_turns()
        if TorchRecorder.has_run:
            _leave_without_destructors()
        _agent = Agent(torch, request, timed_only=TorchRecorder.has_run)


def _leave_without_destructors() -> None:
    """Let this process end after Python's own clean-up, without destructors of C++.

    Kineto's wait for the thread that watches its configuration, which a fork does not copy: the process would
    never end. Handlers of C that are registered after the fork still run.
    """
    libc = ctypes.CDLL(None)
    with suppress(AttributeError):  # other C libraries do not have these, and exit as they do
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
        getattr(libc, "__cxa_atexit")(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)


class _ImportHook:
    """Meta path finder that calls `then` with a module once the program has imported it."""

    def __init__(self, name: str, then: Callable[[Any], object]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the module with the other finders, and extend its loader."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return None
        self._extend(spec.loader)
        return spec

    def _extend(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.exec_module = original
            original(module)
            try:
                self._then(module)
            except Exception as error:  # the program comes first
                sys.stderr.write(f"tracekit: cannot record this program: {error!r}\n")

        loader.exec_module = exec_module
