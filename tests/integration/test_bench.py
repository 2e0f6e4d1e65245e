"""`just bench` on tiny inputs, with the peers that are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TINY = ["--quick", "--sizes", "0.2", "--offline"]
# each run starts with a sync of all disks, which is slow while other processes write
MAIN = "import os; os.sync = lambda: None; from benchmarks.__main__ import main; main()"


def bench(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    command = [sys.executable, "-c", MAIN, *arguments, *TINY, "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return json.loads((folder / "quick.json").read_text()), done.stdout


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    folder = tmp_path_factory.mktemp("bench")
    return folder, *bench(folder, "ingest", "nsys")


def rows(part: dict[str, Any], series: str) -> dict[str, dict[str, Any]]:
    (case,) = [case for case in part["cases"] if case["series"] == series]
    return {row["contender"]: row for row in case["rows"]}


@pytest.mark.slow
def test_the_document_holds_parts_cases_and_rows(measured: tuple[Path, dict[str, Any], str]) -> None:
    _, found, _ = measured
    assert found["schema"] == "tracekit.bench/2"
    assert list(found["parts"]) == ["ingest", "nsys"]
    for part in found["parts"].values():
        assert set(part) >= {"title", "text", "unit", "machine", "versions", "options", "cases", "fits"}
        assert part["machine"]["cores"] >= 1
        for case in part["cases"]:
            assert case["events"] > 0
            assert all(len(row["runs"]) == 1 or row["failed"] for row in case["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["plain", "gz"])
def test_parsers_parse_every_event_and_are_compared(
    measured: tuple[Path, dict[str, Any], str], form: str
) -> None:
    part = measured[1]["parts"]["ingest"]
    found = rows(part, f"simulated, {form}")
    base, parser = found["tracekit import"], found["json.loads"]
    (events,) = {case["events"] for case in part["cases"] if case["series"].startswith("simulated")}
    assert base["runs"][0]["peak_mb"] > 10
    assert parser["ratios"]["wall_s"] == parser["wall_s"]["median"] / base["wall_s"]["median"]
    names = ["json.loads"]
    names += ["orjson.loads"] if find_spec("orjson") else []
    names += ["simdjson, whole", "simdjson, in chunks"] if find_spec("simdjson") else []
    assert [found[name]["reported"]["events"]["median"] for name in names] == [events] * len(names)


@pytest.mark.slow
def test_every_row_of_an_export_is_read(measured: tuple[Path, dict[str, Any], str]) -> None:
    (case,) = measured[1]["parts"]["nsys"]["cases"]
    found = {row["contender"]: row for row in case["rows"]}
    for name in ("sqlite3", "sqlite3 + pandas"):
        assert found[name]["reported"]["events"]["median"] == case["events"]
    assert found["tracekit import"]["failed"] == ""


@pytest.mark.slow
def test_offline_runs_install_nothing_and_list_missing_peers(
    measured: tuple[Path, dict[str, Any], str],
) -> None:
    folder, found, printed = measured
    assert not (folder / "peers").exists()
    if find_spec("hta") is None:
        assert rows(found["parts"]["ingest"], "simulated, plain")["HTA load and breakdown"]["failed"] == (
            "not installed"
        )
        assert "- HTA load and breakdown: not installed" in printed


@pytest.mark.slow
def test_the_page_contains_the_output(measured: tuple[Path, dict[str, Any], str]) -> None:
    folder, _, printed = measured
    assert printed.strip() in (folder / "quick.md").read_text()
    assert not list(folder.glob("scratch*"))


@pytest.mark.slow
def test_parts_measured_later_are_added(measured: tuple[Path, dict[str, Any], str]) -> None:
    folder, before, _ = measured
    found, _ = bench(folder, "analyses", "--only", "kernels")
    assert found["parts"]["ingest"] == before["parts"]["ingest"]
    (case,) = found["parts"]["analyses"]["cases"]
    names = [row["contender"] for row in case["rows"]]
    assert names == ["(open the run)", "kernels", "small_kernels", "(all)"]
    assert all(row["reported"]["analyze_s"]["median"] > 0 for row in case["rows"][1:])


@pytest.mark.slow
def test_every_page_of_the_dashboard_answers(measured: tuple[Path, dict[str, Any], str]) -> None:
    pytest.importorskip("dash")
    found, _ = bench(measured[0], "dashboard", "--only", "page")
    (case,) = found["parts"]["dashboard"]["cases"]
    reported = {row["contender"]: row for row in case["rows"]}["every page"]["reported"]
    assert reported["failures"]["median"] == 0
    assert reported["kernels_first_ms"]["median"] > 0


def test_an_unknown_part_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert "unknown part nothing; choose from ingest, nsys, analyses, dashboard" in done.stderr
