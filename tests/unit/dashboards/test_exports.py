from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from markupsafe import escape
from tracekit.dashboards.app import create_app
from tracekit.dashboards.exports.downloads import quote_formula

from tests.builders import host, kernel, make_run
from tests.traces import imported
from tracekit.analysis import analyze, available, get
from tracekit.analysis.findings import gather
from tracekit.render.cells import records
from tracekit.runs.store import Store
from tracekit.schema import C

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from tracekit.runs.run import Run

TRAINING = Path(__file__).parents[3] / "samples" / "simulated" / "training.json.gz"
HOSTILE = "=cmd|'/c calc'!A1<script>alert(1)</script>"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(
        tmp_path / "store",
        host_intervals=[host("cudaLaunchKernel", 0, 5)],
        device_intervals=[
            kernel(100, 200, **{C.NAME: HOSTILE, C.LAUNCH_ROW: 0, C.STREAM: 7}),
            kernel(300, 350, **{C.NAME: "gemm", C.STREAM: 7}),
        ],
    )


@pytest.fixture
def client(tmp_path: Path, run: Run) -> FlaskClient:
    return create_app(Store(tmp_path / "store")).server.test_client()


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_sheet_holds_exact_values_and_no_formula(client: FlaskClient, run: Run) -> None:
    answer = client.get(f"/export/{run.path.name}/kernels/names.csv")
    spec = next(one for one in get("kernels").tables if one.name == "names")
    expected = records(analyze(run, "kernels").tables["names"], spec.columns)
    found = rows(answer.text)
    assert [int(row["sum_ns"]) for row in found] == [row["sum_ns"] for row in expected] == [100, 50]
    assert [float(row["share"]) for row in found] == [row["share"] for row in expected]
    assert found[0]["name"] == f"'{HOSTILE}"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", " =1"])
def test_text_that_begins_like_a_formula_is_quoted(text: str) -> None:
    assert quote_formula(text) == f"'{text}"


def test_an_archive_holds_every_table(client: FlaskClient, run: Run) -> None:
    answer = client.get(f"/export/{run.path.name}/kernels.zip")
    names = zipfile.ZipFile(io.BytesIO(answer.data)).namelist()
    assert names == [f"kernels-{name}.csv" for name in analyze(run, "kernels").tables]


def test_a_report_stands_alone_and_its_text_is_text(client: FlaskClient, run: Run) -> None:
    answer = client.get(f"/export/{run.path.name}/kernels.html")
    assert "<script" not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert '<div class="tk-plot" role="group"' in answer.text
    assert "100 ns" in answer.text
    assert "src=" not in answer.text
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_browsers_without_scripts_show_the_report_of_the_page(client: FlaskClient, run: Run) -> None:
    address = f"/export/{run.path.name}/kernels.html?inline=1"
    for asked in (f"/kernels?run={run.path.name}", "/kernels"):  # also of the latest run
        page = client.get(asked).text
        assert f'<noscript><meta http-equiv="refresh" content="0; url={address}"></noscript>' in page
    shown = client.get(address)
    assert "Content-Disposition" not in shown.headers
    for part in ("<h1>Kernels</h1>", 'class="tk-plot-bar', "<td"):
        assert part in shown.text
    peaks = client.get("/roofline?peaks=H100+SXM").text
    assert f"/export/{run.path.name}/roofline.html?peaks=H100%20SXM&amp;inline=1" in peaks


def test_pages_without_a_report_are_complete_for_browsers_without_scripts(
    client: FlaskClient, run: Run
) -> None:
    for asked, address, part in (
        ("/", "/runs?&amp;plain=1", f'href="/overview?run={run.path.name}"'),
        ("/timeline", "/timeline?&amp;plain=1", f'href="/idle_gaps?run={run.path.name}"'),
        ("/suite?x=<", "/suite?x=&lt;&amp;plain=1", "The store has no suite"),
        ("/compare?run=none", "/compare?run=none&amp;plain=1", "no readable run none"),
    ):
        assert f'content="0; url={address}"></noscript>' in client.get(asked).text
        plain = client.get(unescape(address), headers={"Accept": "text/html"}).text
        assert 'http-equiv="refresh"' not in plain
        shown = plain.partition('id="first-layout"')[0]
        assert part in shown
        assert 'aria-busy="true"' not in shown
    assert 'http-equiv="refresh"' not in client.get("/none").text


@pytest.mark.slow
def test_an_overview_can_be_taken_away_with_the_findings_of_every_analysis(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    run, client = imported(store, TRAINING), create_app(store).server.test_client()
    found = gather(run, [(one, analyze(run, one.name)) for one in available()]).findings
    text = client.get(f"/export/{run.path.name}/overview.html").text
    assert text.count('<div class="finding') == len(found) > 0
    assert all(escape(one.finding.title) in text for one in found)
    names = zipfile.ZipFile(io.BytesIO(client.get(f"/export/{run.path.name}/overview.zip").data)).namelist()
    assert {name.partition("-")[0] for name in names} >= {"gpu_breakdown", "integrity", "overlap"}


def test_the_trace_is_packed_json(client: FlaskClient, run: Run) -> None:
    answer = client.get(f"/export/{run.path.name}/trace.json.gz")
    events = json.loads(gzip.decompress(answer.data))["traceEvents"]
    assert [one["name"] for one in events if one.get("cat") == "kernel"] == [HOSTILE, "gemm"]


@pytest.mark.parametrize(
    "path", ["{}/kernels/nothing.csv", "{}/nothing/x.csv", "{}/nothing.zip", "{}/runs.html", "no/kernels.zip"]
)
def test_what_is_not_there_is_not_found(client: FlaskClient, run: Run, path: str) -> None:
    assert client.get(f"/export/{path.format(run.path.name)}").status_code == 404


def test_a_path_is_never_a_run(client: FlaskClient) -> None:
    found: Any = client.get("/export/..%2f..%2fetc/kernels.zip")
    assert found.status_code == 404 or b"PK" not in found.data[:2]
