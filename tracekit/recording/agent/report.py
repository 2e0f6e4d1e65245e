"""What a recorded process leaves behind for `collect`: its trace, and beside it what is known of it."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recorder import TorchRecorder

FALLBACK = ".first"
"""Part of the name of a recording of the first call alone, used when there is none better."""


class Report:
    """Files of one process in the directory of the recording.

    `rank-R.json` is a whole trace and `rank-R.facts` what is known of it; `process-P.note` says what a
    process that recorded nothing had seen. The first process to take a rank has it.
    """

    def __init__(self, torch: Any, directory: str) -> None:
        self._torch, self._directory = torch, Path(directory)
        self._name: str | None = None
        self._written = False
        self._taken = False
        self._error = ""

    def place(self, *, fallback: bool) -> Path | None:
        """Where this process' trace goes; None when another process records this rank."""
        if self._name is None:
            name = f"rank-{self._rank()[0]}"
            try:
                os.close(os.open(self._directory / f"{name}.claim", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                self._taken = True
                return None
            self._name = name
        return self._directory / f"{self._name}{FALLBACK * fallback}.json"

    def written(
        self, trace: Path, recorder: TorchRecorder, *, source: str, whole: int, asked: int, first: int
    ) -> None:
        """Say what is known of a trace that is whole."""
        self._written = True
        rank, world = self._rank()
        step_ns, clock = recorder.timings()
        facts = {
            "rank": rank,
            "world_size": world,
            "source": source,
            "first": first,
            "asked": asked,
            "whole": whole,
            "step_ns": step_ns,
            "clock": clock,
            "device": recorder.device,
            "threads": self._torch.get_num_threads(),
            "version": str(self._torch.__version__),
            "options": recorder.options,
            "peaks": recorder.peaks,
            "began_unix_ns": recorder.began_unix_ns,
            "notes": recorder.notes,
            "environment": _environment(),
        }
        self._write(trace.with_suffix(".facts"), facts)

    def close(self, *, source: str, passed: int, said: list[str]) -> None:
        """Say what this process has seen, and why it did not record, if it has recorded nothing."""
        if not self._written:
            note = {
                "source": source,
                "passed": passed,
                "taken": self._taken,
                "error": "; ".join(filter(None, [self._error, *said])),
            }
            self._write(self._directory / f"process-{os.getpid()}.note", note)

    def failed(self, error: Exception) -> None:
        """Keep why this process stopped recording; the first reason counts."""
        self._error = self._error or f"{type(error).__name__}: {error}".splitlines()[0]

    def _rank(self) -> tuple[int, int]:
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        with suppress(KeyError, ValueError):
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return 0, 1

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        with suppress(FileNotFoundError):  # `collect` is gone, and its directory with it
            part = path.with_name(path.name + ".part")
            part.write_text(json.dumps({**content, "at_unix_ns": time.time_ns()}))
            part.rename(path)


def _environment() -> dict[str, Any]:
    """Return `tracekit.runs.environment.capture()`, from its file alone: tracekit may not be installed."""
    place = Path(__file__).parents[2] / "runs" / "environment.py"
    spec = spec_from_file_location(f"{__package__}.environment", place)
    if spec is None or spec.loader is None:
        return {}
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.capture())
