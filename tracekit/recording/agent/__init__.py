"""What runs inside a recorded program: finds its steps and records a window of them with torch.profiler.

`tracekit collect -- python train.py` puts the folder `startup` on PYTHONPATH, so every Python that the
program starts, also through a launcher such as torchrun, imports the `sitecustomize` in it, whichever
environment it belongs to and whether or not tracekit is installed there. So these modules use the standard
library and torch alone, and refer to each other relatively. They wait until the program has imported torch,
and only a process that steps is recorded. `tracekit.record` uses the same window in the user's own process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent

VARIABLE = "TRACEKIT_INSIDE"
NAME = "_tracekit_inside"
"""Under this name the package is loaded in a recorded program."""
STARTUP = Path(__file__).parent / "startup"

_agent: Agent | None = None


def begin(request: str) -> None:
    """Wait for torch, then for steps; called once, before the program.

    Args:
        request: JSON of `directory`, the options of `tracekit collect` by name, and `profiler`: `torch`, or
            `outside` for one that watches the process.
    """
    from .importing import after_import

    after_import("torch", lambda torch: _attach(torch, request))


def step() -> None:
    """The program marks the end of a step by itself."""
    if _agent is not None:
        _agent.marked()


def _attach(torch: Any, request: str) -> None:
    global _agent
    from .agent import Agent

    asked = json.loads(request)
    if not os.path.isdir(asked["directory"]):  # noqa: PTH112 (a process that outlives its recording)
        return
    from .optimizers import watch_optimizers

    _agent = Agent(torch, asked)
    watch_optimizers(
        torch,
        made=lambda: _agent.optimizer_made() if _agent else None,
        stepped=lambda: _agent.optimizer_stepped() if _agent else None,
    )
    os.register_at_fork(after_in_child=lambda: _forked(torch, asked))


def _forked(torch: Any, asked: dict[str, Any]) -> None:
    """A forked process begins anew, unless a profiler ran, which does not outlive a fork."""
    global _agent
    if _agent is not None:
        lost = _agent.is_recording()
        _agent.quit()
        _agent = None if lost else _renewed(torch, asked)


def _renewed(torch: Any, asked: dict[str, Any]) -> Agent:
    from .agent import Agent

    return Agent(torch, asked)


def variables(request: dict[str, Any], environment: dict[str, str]) -> dict[str, str]:
    """The environment of a program to be recorded.

    Args:
        request: What `begin` takes.
        environment: The variables it would have.
    """
    paths = [str(STARTUP), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, VARIABLE: json.dumps(request), "PYTHONPATH": os.pathsep.join(paths)}


def program_step() -> bool:
    """Mark a step if this process is part of a recorded program; whether it is."""
    module = sys.modules.get(NAME)
    if module is None:
        return False
    module.step()
    return True
