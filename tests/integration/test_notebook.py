"""The notebook of the documentation runs, and its objects show themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("torch")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
PLOTLY = "application/vnd.plotly.v1+json"


def outputs(cell: dict[str, Any]) -> dict[str, Any]:
    """What a cell shows, by type."""
    return {kind: data for output in cell["outputs"] for kind, data in output.get("data", {}).items()}


def texts(cell: dict[str, Any]) -> list[str]:
    """What a cell shows as text, one after the other."""
    return [output["data"].get("text/plain", "") for output in cell["outputs"] if "data" in output]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # those of Jupyter
def test_the_notebook_runs_and_shows_summaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(NOTEBOOK.parents[1])])))
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    _, profiled, summary, frame, figure, finding, compared = map(outputs, code)
    assert "label</dt><dd>first</dd>" in profiled["text/html"]
    (progress,) = [text for text in texts(code[1]) if text.startswith("tracekit: ")]
    assert progress.startswith("tracekit: stored ")  # the last of what it showed
    assert "aten::addmm" in summary["text/html"]
    assert "<script" not in summary["text/html"]
    assert "aten::" in frame["text/plain"]
    assert figure[PLOTLY]["data"]
    assert finding["text/plain"]
    assert "no verdict: step time" in compared["text/html"]
    streams = [output for cell in code for output in cell["outputs"] if output["output_type"] == "stream"]
    assert streams == []  # no noise of torch or the profiler


def test_the_notebook_is_stored_without_outputs() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell["outputs"] for cell in book.cells if cell.cell_type == "code")
