"""Keep the output of a recorded process if the recording fails: the draft with its files is deleted then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from tracekit.errors import TracekitError, UnusableInputError, exception_message
from tracekit.runs.store import Draft, new_run_id

LOG = "stderr.txt"
"""Log of the process of a workload, in the folder of its recording."""
LOGS = (LOG, "nsys.txt", "export.txt")
"""Logs that collectors write."""
FOLDER = ".logs"
"""Folder of the store for the logs of failed recordings."""
MOST_KEPT = 20
MOST_BYTES = 1 << 20
"""Maximum size of a log; of a longer one the end is kept."""


@contextmanager
def kept_log(draft: Draft, title: str) -> Iterator[None]:
    """Keep the logs of a recording if the block fails, and name them in the hint of the error.

    Args:
        draft: Draft that the collector records into.
        title: Name of the workload or program.
    """
    try:
        yield
    except TracekitError as error:
        error.log = _keep(draft, title)
        if error.log is not None:
            error.hint = exception_message("; ".join(filter(None, [error.hint, f"log: {error.log}"])))
        raise
    except Exception as error:
        if (log := _keep(draft, title)) is not None:
            error.add_note(f"log: {log}")
        raise


def _keep(draft: Draft, title: str) -> Path | None:
    """Copy what the logs of a draft contain into one file; None if they are empty or it cannot be written."""
    parts = [text for text in map(_end, (draft.path / name for name in LOGS)) if text.strip()]
    if not parts:
        return None
    with suppress(OSError, UnusableInputError):
        folder = draft.store.folder(FOLDER)
        log = folder / f"{new_run_id(title, now=datetime.now(UTC))}.txt"
        log.write_bytes(b"\n".join(parts))
        for old in sorted(folder.glob("*.txt"))[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
        return log
    return None


def _end(path: Path) -> bytes:
    """Return the end of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
            return file.read()
    except OSError:
        return b""
