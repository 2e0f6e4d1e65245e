from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.builders import host, kernel, make_run, step
from tracekit.analysis import analyze, available
from tracekit.analysis.cache import ResultCache
from tracekit.analysis.findings import gather
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Done

pytest.importorskip("jinja2")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def run(analyzed_store: Store, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose results are in the cache of the test's store, whose folder is the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(analyzed_store.path, store.path)
    (copied,) = store.runs()
    return copied


def test_a_report_tells_the_run_its_findings_and_the_analyses(
    tracekit: Callable[..., Done], run: Run
) -> None:
    done = tracekit("report")
    assert (done.code, done.out, done.err) == (0, f"{run.id}.html\n", "")
    text = Path(f"{run.id}.html").read_text()
    results = ResultCache(Store(run.path.parent))
    found = gather(run, [(one, results.analyze(run, one.name)) for one in available()]).findings
    assert text.count('<div class="finding') == len(found) > 0
    row = analyze(run, "gpu_breakdown").tables["profiled_steps"].iloc[0]
    assert f"<b>{100 * row['active_ns'] / row['window_ns']:.1f}%</b>" in text
    assert {"gpu_breakdown", "idle_gaps", "kernels", "ops", "run"} <= set(re.findall(r'<h2 id="(\w+)"', text))
    assert run.id in text


def test_it_asks_for_nothing_and_runs_nothing(
    tracekit: Callable[..., Done], store: Store, tmp_path: Path
) -> None:
    make_run(
        store.path,
        meta={"label": HOSTILE},
        steps=[step(1, 0, 900, **{C.NAME: HOSTILE})],
        host_intervals=[host(HOSTILE, 0, 500, **{C.STEP: 1})],
        device_intervals=[kernel(100, 400, **{C.NAME: HOSTILE, C.STEP: 1})],
    )
    file = tmp_path / "r.html"
    assert tracekit("report", "-o", str(file), "--title", HOSTILE).code == 0
    text = file.read_text()
    assert "default-src 'none'" in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"<(script|img|link|iframe|object|embed|base|form)\b", text)
    assert not re.search(r"\b(src|href)=\"(?!#)", text)
    assert "url(" not in text
    assert "@import" not in text


def test_analyses_and_rows_are_chosen(tracekit: Callable[..., Done], run: Run) -> None:
    assert tracekit("report", "-o", "r.html", "--analyses", "ops, kernels", "--limit", "1").code == 0
    text = Path("r.html").read_text()
    assert re.findall(r'<h2 id="(\w+)"', text) == ["findings", "ops", "kernels", "run"]
    assert max(body.count("<tr>") for body in re.findall(r"<tbody>.*?</tbody>", text, re.DOTALL)) == 1
    assert f"tracekit analyze {run.id} ops --format csv" in text


def test_limit_zero_shows_every_row(tracekit: Callable[..., Done], run: Run) -> None:
    assert tracekit("report", "latest", "ops", "-o", "r.html", "--limit", "0").code == 0
    assert "more rows" not in Path("r.html").read_text()


def test_an_unknown_analysis_is_refused_and_a_folder_takes_the_file(
    tracekit: Callable[..., Done], run: Run
) -> None:
    done = tracekit("report", "--analyses", "nope")
    assert (done.code, done.err.count("\n")) == (2, 1)
    Path("folder").mkdir()
    assert tracekit("report", "-o", "folder", "--analyses", "ops").out == f"folder/{run.id}.html\n"
    Path("other").write_text("x")
    assert tracekit("report", "-o", "other/r.html", "--analyses", "ops").code == 2


def test_a_run_without_anything_has_a_report(
    tracekit: Callable[..., Done], store: Store, tmp_path: Path
) -> None:
    make_run(store.path, host_intervals=[])
    file = tmp_path / "r.html"
    assert tracekit("report", "-o", str(file)).code == 0
    assert "No rule found anything to improve." in file.read_text()
