"""Findings on recorded traces agree with an expert's judgement of them.

For each trace the expert lists findings that must be present and findings that must not be. The traces are
other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.analysis.findings import advise

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

SHARED = Path(__file__).parents[2] / ".." / "shared"
FILE = SHARED / "traces" / "JUDGEMENTS.json"
_ALL: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {}
JUDGED = {name: one for name, one in _ALL.items() if "findings" in one}


@pytest.mark.skipif(bool(JUDGED), reason="the judgements are there")
def test_judgements_are_absent() -> None:
    pytest.skip(f"no judgements at {FILE}: the advice was not checked")


def traces(name: str) -> tuple[Path, ...]:
    """The files of a judged run: a file or folder, or the traces of two ranks."""
    known, _, ranks = name.partition(" ")
    for folder in (SHARED / "traces", SHARED / "nsys"):
        if (folder / known).exists():
            return (folder / known,)
    single = [
        SHARED / "traces" / trace
        for trace, one in _ALL.items()
        if ranks
        and trace != name
        and (one.get("see") == name or trace.startswith(known.replace("_2rank", "_rank")))
    ]
    return tuple(sorted(single))


@pytest.mark.parametrize("name", JUDGED)
def test_findings_are_those_of_the_expert(name: str, shared_runs: SharedRuns) -> None:
    advice = advise(shared_runs.of(*traces(name)))
    codes = {f"{one.analysis}:{one.finding.code}" for one in advice.findings}
    assert set(JUDGED[name]["must"]) - codes == set()
    assert set(JUDGED[name]["must_not"]) & codes == set()
    assert not [note for _, result in advice.results for note in result.notes if "failed" in note]
