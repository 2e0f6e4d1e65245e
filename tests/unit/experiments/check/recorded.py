"""Recorded runs to check: commits of a real repository, hand-made numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.builders import host
from tests.runs import make_run, step_rows
from tracekit.runs.meta import Git, Timings
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import Git as Repository
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

FINGERPRINT: dict[str, Any] = {
    "workload": "resnet50",
    "mode": "train",
    "device": "cuda",
    "batch_size": 8,
    "torch": "2.13.0",
    "gpu": "H200",
}


def commit(git: Repository, text: str, *, branch: str = "") -> str:
    """A new commit, on a new branch if one is named."""
    if branch:  # as `git checkout -b` writes them
        Path(".git/refs/heads", branch).write_text(git("rev-parse", "HEAD") + "\n")
        Path(".git/HEAD").write_text(f"ref: refs/heads/{branch}\n")
    git("commit", "--quiet", "--allow-empty", f"--message={text}")
    return git("rev-parse", "HEAD")


def state(sha: str, *, dirty: bool = False) -> Git:
    return Git(
        sha=sha, tree="", branch=None, dirty=dirty, diff_sha256="changed" if dirty else None, commit_time=""
    )


def count_runs(store: Store) -> int:
    return sum(1 for _ in store.path.glob("*/run.json"))


def in_turn(number: int, before: int) -> int:
    """When a run was made, s, so that those of any two sides alternate as ABBA.

    Args:
        number: How many of its side were made before.
        before: Runs of earlier sides.
    """
    return 1_000 * number + (before if number % 2 == 0 else 999 - before)


def record(
    store: Store,
    sha: str | None,
    step_ns: Sequence[int],
    *,
    dirty: bool = False,
    device_peak: int | None = 1 << 30,
    host_peak: int | None = 1 << 31,
    label: str | None = None,
    clock: float | None = None,
    steps: int = 3,
    settings: dict[str, Any] | None = None,
    apart: bool = False,
    inputs: Sequence[str] = (),
    **fields: Any,
) -> list[Run]:
    """One run for each step time, made in ABBA order with those of other calls, unless they are apart."""
    made, before = [], count_runs(store)
    for number, step in enumerate(step_ns):
        peaks = {"device_peak_allocated_bytes": device_peak, "host_peak_bytes": host_peak}
        counters = [
            {C.T_NS: 0, C.SOURCE: "torch", C.METRIC: name, C.UNIT: "bytes", C.VALUE: float(value)}
            for name, value in peaks.items()
            if value
        ]
        if clock:
            sampled = {C.T_NS: 0, C.SOURCE: "nvml", C.METRIC: "sm_clock_mhz", C.UNIT: "MHz", C.VALUE: clock}
            counters.append(sampled)
        made.append(
            make_run(
                store,
                after_s=10_000 * (before + 1) + number if apart else in_turn(number, before),
                tables={"steps": step_rows(0, 20), "counters": counters, **_ops(inputs[number : number + 1])},
                git=state(sha, dirty=dirty) if sha else None,
                label=label,
                command=["tracekit", "collect", "--workload", "resnet50"],
                fingerprint=FINGERPRINT | fields,
                workload=settings,
                timings=Timings([step] * steps, [], "cuda_event") if step else None,
            )
        )
    return made


def _ops(inputs: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    place = {C.ROW_ID: 0, C.RANK: 0, C.PID: 1, C.TID: 1, C.DEPTH: 0, C.STEP: 0}
    rows = [host("aten::mm", 1, 5, **place, **{C.INPUT_SHAPES: shapes}) for shapes in inputs]
    return {"host_intervals": rows} if rows else {}
