"""The process that imports what was sent: it tells of itself in lines of JSON, and ends with its parent.

An import of its own process keeps the pages answering, gives its memory back, and can be ended at any moment:
a run that was not finished leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.places import Place

BOOTSTRAP = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tracekit.dashboards.imports.worker import work
work(sys.argv[2], sys.argv[3:])
"""
_STEP = 1 << 20
"""Bytes of a trace between two lines about progress."""


def start(store: Place, traces: Sequence[Path]) -> subprocess.Popen[str]:
    """A process that imports traces into a store and writes lines of JSON.

    Each line is `{"progress": [name, bytes, size]}`, `{"run": id, "warnings": number}` or
    `{"error": message, "hint": hint}`. It ends when its standard input does.
    """
    words = [json.dumps(sys.path), str(store), *map(str, traces)]
    return subprocess.Popen(  # noqa: S603 (our own code)
        [sys.executable, "-c", BOOTSTRAP, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C in the terminal is the parent's, also while this one still starts
    )


def work(store: str, traces: Sequence[str]) -> None:
    """Import traces into a store, as `start` says."""
    import pyarrow as pa

    from tracekit import places
    from tracekit.ingest.importer import import_each
    from tracekit.store import Store

    signal.signal(signal.SIGTERM, _unwind)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        for outcome in import_each(
            Store(places.parse(store)), [Path(trace) for trace in traces], progress=_progress()
        ):
            if isinstance(outcome, TracekitError):
                _tell({"error": outcome.message, "hint": outcome.hint})
            else:
                warnings = sum(one.level != "info" for one in outcome.meta.diagnostics)
                _tell({"run": outcome.path.name, "warnings": warnings})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends by itself, and nothing is left to undo


def _unwind(*_: object) -> None:
    """End with nothing left behind; told again meanwhile, it is not disturbed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _progress() -> Callable[[str, int, int], None]:
    told: dict[str, int] = {}

    def tell(name: str, done: int, size: int) -> None:
        if done - told.get(name, -_STEP) >= _STEP or done >= size:
            told[name] = done
            _tell({"progress": [name, done, size]})

    return tell


def _tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
