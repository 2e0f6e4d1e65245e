"""Logs of recorded processes: the line with the error, and a copy that outlives a failed recording.

The draft of a failed recording is deleted with all of its files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
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
MAX_LOGS = 20
MAX_LOG_BYTES = 1 << 20
"""Maximum size of a log; of a longer one the end is kept."""

_NOISE = re.compile(r"USDT:|\[?[WI]\d{4} |STAGE:|\s|$")
"""Start of lines of torch's own log, and of indented lines of a traceback."""
_ADVICE = re.compile(
    r"(?:CUDA|HIP) kernel errors might|For debugging consider passing|Compile with `?TORCH_USE_"
    r"|Device-side assertion|^Search for `|^Exception raised from|^frame #\d+:|^<omitting python frames>"
    r"|^terminate called|^Aborted|^Segmentation fault"
)
"""Lines that torch and the C++ library add to an error."""
_TRACEBACK, _WHAT = "Traceback (most recent call last):", "what():"
_ASSERTION = re.compile(r"Assertion `[^`]*` failed")
_RANK = re.compile(r"^\[(?:rank|default)\d+\]:\s?")  # what torchrun puts before lines of a rank


@contextmanager
def keep_failed_log(draft: Draft, title: str) -> Iterator[None]:
    """Keep the logs of a recording if the block fails, and name them in the hint of the error."""
    try:
        yield
    except TracekitError as error:
        error.log = _copy_logs(draft, title)
        if error.log is not None:
            error.hint = exception_message("; ".join(filter(None, [error.hint, f"log: {error.log}"])))
        raise
    except Exception as error:
        if (log := _copy_logs(draft, title)) is not None:
            error.add_note(f"log: {log}")
        raise


def _copy_logs(draft: Draft, title: str) -> Path | None:
    """Copy what the logs of a draft contain into one file; None if they are empty or it cannot be written."""
    parts = [text for text in map(_read_end, (draft.path / name for name in LOGS)) if text.strip()]
    if not parts:
        return None
    with suppress(OSError, UnusableInputError):
        folder = draft.store.folder(FOLDER)
        log = folder / f"{new_run_id(title, now=datetime.now(UTC))}.txt"
        log.write_bytes(b"\n".join(parts))
        for old in sorted(folder.glob("*.txt"))[:-MAX_LOGS]:
            old.unlink(missing_ok=True)
        return log
    return None


def _read_end(path: Path) -> bytes:
    """Return the end of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LOG_BYTES))
            return file.read()
    except OSError:
        return b""


def error_line(text: str) -> str:
    r"""Return the line of a log that most likely has the error.

    It is the exception of the last Python traceback, else of the last C++ exception, else the last line that
    is not advice or noise of torch. A failed assertion of a kernel is appended.

    Example:
        >>> error_line("RuntimeError: no kernel\nUSDT:2026 profiler_stop\n")
        'RuntimeError: no kernel'
        >>> error_line("CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA` to ...")
        'CUDA error: unspecified launch failure'
    """
    lines = [_RANK.sub("", line.rstrip()) for line in text.splitlines()]
    plain = [line.strip() for line in lines if not _NOISE.match(line) and not _ADVICE.search(line)]
    cpp = [line.partition(_WHAT)[2].strip() for line in lines if line.lstrip().startswith(_WHAT)]
    error = next((texts[-1] for texts in (_python_exceptions(lines), cpp, plain) if texts), "no output")
    assertion = next((match[0] for line in lines if (match := _ASSERTION.search(line))), "")
    return f"{error}: {assertion}" if assertion and assertion not in error else error


def _python_exceptions(lines: Sequence[str]) -> list[str]:
    """Return the exceptions of Python tracebacks: the first line after each that is not indented."""
    exceptions, inside = [], False
    for line in lines:
        if line.startswith(_TRACEBACK):
            inside = True
        elif inside and line and not line[0].isspace() and not _NOISE.match(line):
            inside = False
            exceptions.append(line)
        elif not inside and exceptions and exceptions[-1].endswith(":") and line.strip():
            exceptions[-1] = f"{exceptions[-1]} {line.strip()}"  # the message begins on the next line
    return exceptions
