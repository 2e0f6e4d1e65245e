"""Worker process that imports traces, reports JSON lines, and exits with its parent.

A separate process keeps pages responsive, frees its memory, and can be killed at any time: an unfinished run
leaves nothing in the store.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracekit.errors import TracekitError
from tracekit.storage import Place

BOOTSTRAP = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tracekit.dashboards.imports.worker import import_all
import_all(sys.argv[2], sys.argv[3:])
"""
_PROGRESS_BYTES = 1 << 20  # bytes of a trace between two progress messages


def start_worker(store: Place, traces: Sequence[Path]) -> subprocess.Popen[str]:
    """Start a process that imports traces into a store and prints JSON lines.

    Each line is `{"progress": [name, bytes, size]}`, `{"run": id, "warnings": number}` or
    `{"error": message, "hint": hint}`. It exits when its standard input closes.
    """
    words = [json.dumps(sys.path), str(store), *map(str, traces)]
    return subprocess.Popen(  # noqa: S603 (own code)
        [sys.executable, "-c", BOOTSTRAP, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C must reach only the parent
    )


def import_all(store: str, traces: Sequence[str]) -> None:
    """Import traces into a store; runs in the worker process."""
    import pyarrow as pa

    from tracekit import storage
    from tracekit.ingest.importer import import_each
    from tracekit.runs.store import Store

    signal.signal(signal.SIGTERM, _exit_with_cleanup)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pa.set_memory_pool(pa.system_memory_pool())
    reported: dict[str, int] = {}

    def report(name: str, done: int, size: int) -> None:
        if done - reported.get(name, -_PROGRESS_BYTES) >= _PROGRESS_BYTES or done >= size:
            reported[name] = done
            _send({"progress": [name, done, size]})

    try:
        target, paths = Store(storage.parse(store)), [Path(trace) for trace in traces]
        for outcome in import_each(target, paths, progress=report):
            if isinstance(outcome, TracekitError):
                _send({"error": outcome.message, "hint": outcome.hint})
            else:
                warnings = sum(diagnostic.level != "info" for diagnostic in outcome.meta.diagnostics)
                _send({"run": outcome.path.name, "warnings": warnings})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # already exiting


def _exit_with_cleanup(*_: object) -> None:
    """Exit with cleanup; ignore further signals."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _send(message: dict[str, Any]) -> None:
    """Send a message to the parent; exit with cleanup if the parent has ended."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed once more at the exit
        _exit_with_cleanup()
