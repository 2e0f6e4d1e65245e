"""The magic `%%profile` of notebooks: records a cell as a run."""

from __future__ import annotations

import shlex
from typing import Any

from tracekit.errors import TracekitError
from tracekit.recording.api import Record

_USAGE = "%%profile [LABEL]"


def register(shell: Any) -> None:
    """Add the magic to a shell of IPython.

    Args:
        shell: The shell.
    """

    def profile(line: str, cell: str) -> None:
        """Record the cell as a run; `tracekit.step()` in it marks the end of a step.

        %%profile [LABEL]
        """
        words = shlex.split(line)
        if len(words) > 1 or line.strip().startswith("-"):
            print(f"usage: {_USAGE}")  # noqa: T201 (a magic prints)
            return
        record = Record(
            label=words[0] if words else None,
            start_step=0,
            steps=None,
            stacks=False,
            light=False,
            keep_trace=False,
            store=None,
        )
        try:
            with record:
                shell.run_cell(cell).raise_error()
        except TracekitError as error:
            print(f"tracekit: {error}")  # noqa: T201
            return
        shell.user_ns["run"] = record.run
        from IPython.display import display

        display(record.run)  # type: ignore[no-untyped-call]

    shell.register_magic_function(profile, "cell", "profile")
