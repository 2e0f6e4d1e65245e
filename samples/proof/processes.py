"""Run each recipe in its own process, with a time limit; whatever happens to it is a result."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.collectors.children import child

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .recipes import Recipe

NOT_APPLICABLE_CODE = 77
"""Exit code of a program that cannot show anything on this machine; its last line says why."""
OUT, ERR, FACTS = "stdout.txt", "stderr.txt", "facts.json"


class State(StrEnum):
    """How a recipe ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    NOT_APPLICABLE = "not-applicable"
    NOT_RUN = "not-run"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A recipe that ended, or was not started.

    Attributes:
        state: How.
        reason: Why, unless it went well.
        code: Exit code, negative for a signal; None if it was not started or was stopped.
        seconds: Time it took.
        facts: What its program knows of its work.
        errors: Its standard error.
    """

    state: State
    reason: str = ""
    code: int | None = None
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    errors: str = ""


def run(
    recipe: Recipe,
    folder: Path,
    *,
    store: Path,
    last: str,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a recipe.

    Args:
        recipe: Recipe to run.
        folder: Where its outputs go; it is made.
        store: Store of the runs.
        last: Index of the last GPU.
        seconds: Time left; the recipe's own limit holds as well.
        environment: All environment variables; None for those of this process.
    """
    folder.mkdir(parents=True)
    facts = folder / FACTS
    words = {
        "python": sys.executable,
        "programs": str(Path(__file__).parent / "programs"),
        "facts": str(facts),
        "store": str(store),
        "name": recipe.name,
        "last": last,
    }
    command = [word.format(**words) for word in recipe.command]
    limit, began = min(recipe.seconds, seconds), time.monotonic()
    code = execute(command, folder / OUT, folder / ERR, seconds=limit, environment=environment)
    took = time.monotonic() - began
    errors = (folder / ERR).read_text(errors="replace")
    state, reason = _judged(recipe, code, errors, limit)
    return Ended(state=state, reason=reason, code=code, seconds=took, facts=_facts(facts), errors=errors)


def execute(
    command: Sequence[str],
    out: Path,
    err: Path,
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a command with its outputs in files; returns its exit code, None if it was stopped at the limit.

    All of its descendants are ended as well.
    """
    with (
        out.open("wb") as output,
        err.open("wb") as errors,
        child(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, environment=environment
        ) as process,
    ):
        try:
            code: int = process.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            return None
    return code


def _judged(recipe: Recipe, code: int | None, errors: str, limit: float) -> tuple[State, str]:
    if code is None:
        return State.TIMEOUT, f"it did not end within {limit:.0f} s"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    if code == NOT_APPLICABLE_CODE:
        own = [line for line in lines if not line.startswith("tracekit:")]
        return State.NOT_APPLICABLE, own[-1] if own else last
    if recipe.fails:
        if code == 0:
            return State.FAILED, "it should have failed, and did not"
        if recipe.fails not in errors:
            return State.FAILED, f"its error does not name {recipe.fails!r}: {last}"
        return State.OK, ""
    if code < 0:
        return State.FAILED, f"it was ended by signal {-code}: {last}"
    return (State.FAILED, f"exit code {code}: {last}") if code else (State.OK, "")


def _facts(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
