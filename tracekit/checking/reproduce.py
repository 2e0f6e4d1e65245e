"""Command that repeats a check of the same runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.checking.model import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run


def command(
    against: str, head: Sequence[Run], stored: Sequence[Run], options: Options, *, merge_base: str | None
) -> tuple[str, ...]:
    """Return the command that repeats the check, with commit ids in place of branches."""
    plain = Options()
    words = ["tracekit", "check", "--against", f"git:{merge_base[:12]}" if merge_base else against]
    words += ["--threshold", f"{100 * options.threshold:g}%"]
    words += ["--metric", ",".join(options.metrics)] if options.metrics != plain.metrics else []
    words += [word for field in options.varying for word in ("--varying", field)]
    words += ["--min-runs", str(options.least)] if options.least != plain.least else []
    words += ["--byte-tolerance", str(options.tolerance)] if options.tolerance != plain.tolerance else []
    words += ["--allow-dirty"] if options.allow_dirty else []
    return (*words, *(word for name in _heads(head, stored) for word in ("--run", name)))


def _heads(head: Sequence[Run], stored: Sequence[Run]) -> tuple[str, ...]:
    """Return references to the runs of the head; a single one if they are all runs of a commit."""
    state = head[0].meta.git
    same = [run for run in stored if state and run.meta.git and run.meta.git.sha == state.sha]
    if state and not state.dirty and len(same) == len(head):
        return (f"git:{state.sha[:12]}",)
    return tuple(run.id for run in head)
