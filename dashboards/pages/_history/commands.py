"""`tracekit bisect` commands."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .series import State

_SHA = re.compile(r"[0-9a-f]{40,64}")
_COLLECT = ["tracekit", "collect"]


def bisect(good: State, bad: State, metric: str) -> str:
    """Return the command that bisects between two commits; empty if the recorded command is unknown.

    Only `tracekit collect` commands are repeated; others may come from an imported file.
    """
    command = bad.typical.meta.command
    shas = (good.git.sha, bad.git.sha)
    if command[:2] != _COLLECT or shas[0] == shas[1] or not all(_SHA.fullmatch(sha) for sha in shas):
        return ""
    between = f"{shas[0][:12]}..{shas[1][:12]}"
    return shlex.join(["tracekit", "bisect", between, "--metric", metric, "--", *command])


def ends(found: Sequence[State]) -> tuple[State, State] | None:
    """Return the oldest and the newest commit; None without two."""
    clean = [state for state in found if not state.git.dirty]
    return (clean[0], clean[-1]) if len(clean) > 1 else None
