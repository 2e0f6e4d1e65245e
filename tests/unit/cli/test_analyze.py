from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.shared.common import NO_DEVICE

from tests.builders import host, kernel, make_run, memcpy
from tracekit import analysis, registry
from tracekit.cli.main import run

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.executors import Workers
    from tracekit.runs.run import Run

    Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store, whose cached results the tests share."""
    folder = tmp_path_factory.mktemp("store")
    make_run(folder, device_intervals=[kernel(0, 60, name="[bold]k\x1b[2J"), memcpy(70, 100)])
    return str(folder)


def analyze(*arguments: str, store: str) -> int:
    return run(["analyze", *arguments, "--store", store])


def test_json_is_the_documented_object(directory: str, capsys: Capture) -> None:
    assert analyze("latest", "gpu_breakdown", "kernels", "--format", "json", store=directory) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "tracekit.analyze/1"
    assert found["run"] == "20261121T000000Z-made-by-hand-000000"
    assert list(found["results"]) == ["gpu_breakdown", "kernels"]
    breakdown = found["results"]["gpu_breakdown"]
    assert set(breakdown) == {"tables", "findings", "notes"}
    (row,) = breakdown["tables"]["whole"]
    assert [row[name] for name in ("window_ns", "active_ns", "movement_ns", "idle_ns")] == [100, 60, 30, 10]


def test_every_analysis_runs_on_the_latest_run_by_default(directory: str, capsys: Capture) -> None:
    assert analyze("--format", "json", store=directory) == 0
    assert sorted(json.loads(capsys.readouterr().out)["results"]) == registry.names(registry.ANALYSES)


def test_an_analysis_alone_means_the_latest_run(directory: str, capsys: Capture) -> None:
    assert analyze("kernels", "--format", "json", store=directory) == 0
    assert list(json.loads(capsys.readouterr().out)["results"]) == ["kernels"]


def test_given_peaks_are_used_and_refused_where_they_have_no_effect(directory: str, capsys: Capture) -> None:
    arguments = ("latest", "device_compare", "--peaks", "l4", "--format", "json")
    assert analyze(*arguments, store=directory) == 0
    found = json.loads(capsys.readouterr().out)["results"]["device_compare"]
    (row,) = found["tables"]["devices"]
    assert (row["fp16"], row["gb_per_s"]) == (121, 300)
    assert found["notes"][0].startswith("peaks are those of L4")
    assert analyze("latest", "steps", "--peaks", "l4", store=directory) == 2
    assert (
        "--peaks has no effect on steps; it is for kernels, roofline, device_compare"
        in capsys.readouterr().err
    )
    assert run(["findings", "latest", "--peaks", "L5", "--store", directory]) == 2
    assert "the peaks of 'L5' are not listed" in capsys.readouterr().err


def test_the_verdict_stands_on_top_whatever_is_asked(directory: str, capsys: Capture) -> None:
    assert analyze("latest", "kernels", store=directory) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("integrity: usable: 2 of 2 device intervals have no launching call")
    assert not [line for line in lines if "\x1b" in line]


def test_csv_names_each_table_and_one_alone_has_only_its_rows(directory: str, capsys: Capture) -> None:
    assert analyze("latest", "kernels", "--format", "csv", store=directory) == 0
    assert "# kernels.families\nfamily," in capsys.readouterr().out
    assert analyze("latest", "gpu_breakdown", "--table", "whole", "--format", "csv", store=directory) == 0
    assert capsys.readouterr().out.startswith("rank,device,window_ns,active_ns,movement_ns,idle_ns,")


@pytest.fixture
def without_device(tmp_path: Path) -> str:
    make_run(tmp_path, host_intervals=[host("aten::relu", 0, 10)])
    return str(tmp_path)


def test_csv_without_a_table_says_why_on_stderr(without_device: str, capsys: Capture) -> None:
    assert analyze("latest", "kernels", "--format", "csv", store=without_device) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"kernels: {NO_DEVICE}\n"


def test_a_table_that_this_run_cannot_have_is_refused_with_the_reason(
    without_device: str, capsys: Capture
) -> None:
    assert analyze("latest", "gpu_breakdown", "--table", "whole", store=without_device) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (f"tracekit: no table 'whole' for this run: gpu_breakdown: {NO_DEVICE}; available: host")


def test_a_limit_holds_in_every_format(tmp_path: Path, capsys: Capture) -> None:
    make_run(tmp_path, device_intervals=[kernel(at, at + 1, name=f"k{at}x") for at in range(5)])
    one = ("latest", "kernels", "--table", "names", "--limit", "2")
    counts = {}
    for output_format in ("table", "json", "csv", "markdown"):
        assert analyze(*one, "--format", output_format, store=str(tmp_path)) == 0
        shown = capsys.readouterr().out
        counts[output_format] = sum(shown.count(f"k{at}x") for at in range(5))
    assert counts == {"table": 4, "json": 4, "csv": 4, "markdown": 4}  # in the name and in the family


def test_markdown_has_headings_and_notes(directory: str, capsys: Capture) -> None:
    assert analyze("latest", "gpu_breakdown", "--format", "markdown", store=directory) == 0
    shown = capsys.readouterr().out
    assert "## GPU time breakdown" in shown
    assert "> no profiled steps" in shown


@pytest.mark.parametrize("output_format", ["table", "json", "csv", "markdown"])
def test_the_list_comes_from_the_metadata(output_format: str, capsys: Capture) -> None:
    assert run(["analyze", "--list", "--format", output_format]) == 0
    shown = capsys.readouterr().out.replace("\\", "")
    assert all(name in shown for name in registry.names(registry.ANALYSES))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("latest", "nope"), "known: call_tree, capture, collectives"),
        (("latest", "kernels", "--table", "nope"), "available: families"),
        (("absent",), "absent"),
    ],
)
def test_wrong_usage_is_one_line(
    directory: str, capsys: Capture, arguments: tuple[str, ...], said: str
) -> None:
    assert analyze(*arguments, store=directory) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert said in shown.err


@pytest.mark.slow_except("findings")
@pytest.mark.parametrize("command", ["analyze", "findings"])
def test_without_the_cache_everything_is_computed_anew(
    command: str, directory: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [command, "latest", "kernels", "--format", "json", "--store", directory]
    assert run(asked) == 0
    first = capsys.readouterr().out
    done: list[str] = []
    real = analysis.analyze

    def compute(opened: Run, name: str, *, workers: Workers | None = None) -> analysis.Result:
        done.append(name)
        return real(opened, name, workers=workers)

    monkeypatch.setattr(analysis, "analyze", compute)
    assert run(asked) == 0
    assert done == []
    assert run([*asked, "--no-cache"]) == 0
    assert done == {"analyze": ["kernels"], "findings": ["kernels", "integrity"]}[command]
    assert capsys.readouterr().out == first * 2


def test_ops_by_module_are_the_modules(directory: str, capsys: Capture) -> None:
    asked = ["--format", "json", "--store", directory]
    assert run(["analyze", "latest", "ops", "--by", "module", *asked]) == 0
    by_module = capsys.readouterr().out
    assert run(["analyze", "latest", "modules", *asked]) == 0
    assert capsys.readouterr().out == by_module
    assert run(["analyze", "latest", "kernels", "--by", "module", *asked]) == 2
    assert "--by module is an option of ops" in capsys.readouterr().err
