"""What `tracekit import` says about an import that could have been faster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tracekit.cli import import_
from tracekit.cli.main import run

TRACE = Path(__file__).parents[3] / "samples/simulated/training.json.gz"


@pytest.mark.parametrize(
    ("many_rows", "missing", "told"), [(1, True, True), (1, False, False), (150_000, True, False)]
)
def test_a_large_import_without_numba_names_the_extra(
    many_rows: int,
    missing: bool,
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(import_, "_MIN_LARGE_ROWS", many_rows)
    if missing:
        monkeypatch.setitem(sys.modules, "numba", None)
    assert run(["import", str(TRACE), "--store", str(tmp_path / "store")]) == 0
    shown = capsys.readouterr()
    assert ("pip install 'tracekit-torch[fast]'" in shown.err) == told
    assert len(shown.out.splitlines()) == 1
