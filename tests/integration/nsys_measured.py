"""Plays the measured processes of the nsys collector without torch; its first argument says how it ends."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

RUNTIME = runpy.run_path(str(Path(__file__).parents[1] / "nsys_runtime.py"))
RESULT = {
    "device": "cpu",
    "threads": 1,
    "step_ns": [5, 7],
    "warmup_ns": [9],
    "clock": "perf_counter",
    "samples": [],
    "batch_size": 4,
    "notes": [],
    "compilation": None,
    "environment": {"python": "3"},
}


def main(how: str, arguments: list[str]) -> int:
    """Tell as the real ones do."""
    device = how.removeprefix("on ") if how.startswith("on ") else "cpu"
    if not arguments:
        json.load(sys.stdin)
        tell(sys.stdout, event="progress", part="measure", done=1, total=1)
        tell(sys.stdout, event="result", **{**RESULT, "device": device})
        return 0
    with Path(arguments[0]).with_name("events.jsonl").open("a") as reported:
        tell(reported, event="progress", part="profile", done=0, total=2)
        if how == "fails":
            raise RuntimeError("no kernel image is available")
        if how == "lacks access":
            raise PermissionError(13, "Permission denied", "train.bin")
        if how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "runs on":
            signal.pause()
        if how == "leaves a process":
            subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)", str(Path(arguments[0]).parent)]
            )
        if how == "lacks memory":
            tell(reported, event="error", kind="CollectionError", message="out of memory", hint="lower it")
            return 5
        report = RUNTIME["report"]
        report("range warm-up")
        if device == "cuda":
            report("start")
            report("kernel gemm")
        report("range ProfilerStep#1")
        if device == "cuda":
            report("stop")
        report("range after the steps")
        tell(reported, event="result", notes=[["no_nvtx_ops", "nsys saw no ops"]], samples=[], diagnostics=[])
    return 3 if how == "ends with 3" else 0


def tell(stream: Any, **event: Any) -> None:
    """One line."""
    stream.write(json.dumps(event) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
