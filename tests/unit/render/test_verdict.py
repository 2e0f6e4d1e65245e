from __future__ import annotations

from tracekit.analysis import Result
from tracekit.analysis.verdict import integrity_line


def test_a_verdict_that_could_not_be_reached_says_why() -> None:
    failed = Result(notes=("failed: the file is\x1b damaged",))
    assert integrity_line(failed) == "integrity: unknown: failed: the file is\\x1b damaged\n"
