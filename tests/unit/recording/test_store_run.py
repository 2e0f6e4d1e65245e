"""Runs of programs with other changes are of other configurations."""

from __future__ import annotations

from datetime import UTC, datetime

from tracekit.recording.collector import Recording
from tracekit.recording.store_run import program_meta
from tracekit.runs.meta import CHANGE


def test_changes_made_by_collect_are_part_of_the_configuration() -> None:
    """Else their runs would be repeats of the unchanged program in `noise`, `check` and the history."""
    recording = Recording(traces=(), device="cpu", threads=1, version="1", timings=None)
    plain, changed = (
        program_meta(
            "train", recording, {CHANGE: names}, collector="torch", command=["x"], now=datetime.now(UTC)
        )
        for names in ((), ("bfloat16",))
    )
    assert CHANGE not in plain.fingerprint  # equal to runs from before there were changes
    assert changed.fingerprint == {**plain.fingerprint, CHANGE: ["bfloat16"]}
