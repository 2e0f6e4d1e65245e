"""Files that a recorded process leaves for `tracekit collect`: its trace, and facts about it or a note."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recorder import TorchRecorder

FALLBACK = ".first"
"""Part of the name of a recording of the first call only, used if there is no other."""


class Report:
    """Files of one process in the directory of the recording.

    `rank-R.json` is a complete trace and `rank-R.facts` describes it; `process-P.note` describes a process
    without a recording. The first process that claims a rank records it.
    """

    def __init__(self, torch: Any, directory: str) -> None:
        self._torch, self._directory = torch, Path(directory)
        self._name: str | None = None
        self._written = False
        self._error = ""

    def trace_path(self, *, fallback: bool) -> Path | None:
        """Return the path for the trace of this process; None if another process records this rank."""
        if self._name is None:
            name = f"rank-{self._rank()[0]}"
            try:
                os.close(os.open(self._directory / f"{name}.claim", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return None
            self._name = name
        return self._directory / f"{self._name}{FALLBACK * fallback}.json"

    def write_facts(
        self,
        trace: Path,
        recorder: TorchRecorder,
        *,
        source: str,
        recorded_steps: int,
        requested_steps: int,
    ) -> None:
        """Describe a complete trace."""
        self._written = True
        rank, world = self._rank()
        step_ns, clock = recorder.timings()
        facts = {
            "rank": rank,
            "world_size": world,
            "source": source,
            "requested_steps": requested_steps,
            "recorded_steps": recorded_steps,
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

    def write_note(self, *, source: str, steps_done: int, notes: list[str]) -> None:
        """Describe a process that recorded nothing, and the reason if it is known."""
        if not self._written:
            error = "; ".join(filter(None, [self._error, *notes]))
            note = {"source": source, "steps_done": steps_done, "error": error}
            self._write(self._directory / f"process-{os.getpid()}.note", note)

    def set_error(self, error: Exception) -> None:
        """Keep the first error that stopped recording."""
        self._error = self._error or f"{type(error).__name__}: {error}".splitlines()[0]

    def _rank(self) -> tuple[int, int]:
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        with suppress(KeyError, ValueError):
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return 0, 1

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        with suppress(FileNotFoundError):  # `collect` and its directory are gone
            part = path.with_name(path.name + ".part")
            part.write_text(json.dumps(content))
            part.rename(path)


def _environment() -> dict[str, Any]:
    """Return `tracekit.runs.environment.capture()`, loaded from its file: tracekit may not be installed."""
    path = Path(__file__).parents[2] / "runs" / "environment.py"
    spec = spec_from_file_location(f"{__package__}.environment", path)
    if spec is None or spec.loader is None:
        return {}
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.capture())
