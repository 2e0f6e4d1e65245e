from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from tests.builders import host, kernel, make_run, step
from tracekit.cli.collect import print_summary
from tracekit.cli.main import run
from tracekit.runs.meta import Timings
from tracekit.schema import C
from tracekit.workloads.base import DOMAINS

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run


def test_a_level_that_is_not_offered_names_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collect", "--workload", "lennard_jones", "--level", "torchscript"]) == 2
    said = "tracekit: lennard_jones has no level 'torchscript'; use --level eager or compile\n"
    assert capsys.readouterr().err == said


def test_the_summary_has_the_mean_and_its_spread_and_names_the_command_that_shows_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ops = [host(f"op{number}", number * 10, number * 10 + 5) for number in range(40)]
    timings = Timings([1_000_000, 4_000_000], [], "perf_counter")
    made = make_run(tmp_path, meta={"timings": timings}, host_intervals=ops)
    print_summary(made)
    shown, hints = capsys.readouterr()
    assert (
        "Step time without the profiler: 2.50 ms (mean of 2 steps; median 1.00 ms, p90 4.00 ms, p99 4.00 ms, "
        "spread 300.0%)\nThe mean is 2.5 times the median: some steps take far longer\n"
    ) in shown
    assert f"33 more rows; `tracekit analyze {made.id} host_breakdown --limit 0` shows all" in shown
    see = f"`tracekit analyze {made.id} host_breakdown`, and `tracekit findings {made.id}` for advice"
    assert hints == f"tracekit: see {see}\n"
    assert run(["analyze", made.id, "host_breakdown", "--limit", "0", "--store", str(tmp_path)]) == 0
    assert "op39" in capsys.readouterr().out


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("kernels", "name"),
    [
        ([(0, 90, "gemm")], "kernels"),
        ([(0, 30, "gemm")], "idle_gaps"),
        ([(0, 60, "gemm"), (60, 90, "ncclDevKernel_AllReduce")], "collectives"),
        ([(0, 90, "gemm"), (10, 40, "ncclDevKernel_AllReduce")], "kernels"),
    ],
    ids=["busy", "idle", "exposed communication", "overlapped communication"],
)
def test_the_summary_names_the_analysis_that_fits_the_run(
    kernels: list[tuple[int, int, str]], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        kernel(begin * 1_000, end * 1_000, **{C.NAME: kind, C.STREAM: number})
        for number, (begin, end, kind) in enumerate(kernels)
    ]
    made = make_run(tmp_path, device_intervals=rows, steps=[step(0, 0, 100_000)])
    print_summary(made)
    said = f"see `tracekit analyze {made.id} {name}`, and `tracekit findings {made.id}` for advice"
    assert capsys.readouterr().err == f"tracekit: {said}\n"


def misleading(folder: Path) -> Run:
    """A run whose profiled step takes far longer than its timed ones."""
    timings = Timings([2_310_000, 2_310_000], [], "perf_counter")
    end = 1_300_000_000
    return make_run(
        folder, meta={"timings": timings}, host_intervals=[host("aten::mm", 0, end)], steps=[step(0, 0, end)]
    )


def test_the_summary_begins_with_the_verdict_on_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_summary(misleading(tmp_path))
    first, bound, _, times, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("integrity: misleading: a profiled step takes 56177.")
    assert bound.startswith("Cannot tell what bounds this run: a profiled step takes 56177.")
    assert times.startswith("Step time without the profiler: 2.31 ms (mean of 2 steps; median 2.31 ms, p90")


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("names", [[], ["kernels"]], ids=["all", "one"])
def test_advice_begins_with_the_verdict_whichever_analyses_give_it(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = misleading(tmp_path)
    assert run(["findings", made.id, *names, "--store", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("integrity: misleading: a profiled step takes")


def test_a_comparison_begins_with_what_makes_it_misleading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = misleading(tmp_path)
    assert run(["diff", made.id, made.id, "--store", str(tmp_path)]) == 0
    headline = capsys.readouterr().out.splitlines()[2]
    assert headline.startswith("misleading numbers: base: a profiled step takes 56177.")


def test_workloads_say_what_they_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workloads", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["schema"] == "tracekit.workloads/1"
    resnet50 = next(one for one in listed["workloads"] if one["name"] == "resnet50")
    assert resnet50["parameters"] == 25_557_032
    assert resnet50["modes"] == ["train", "infer"]
    assert resnet50["levels"][:3] == ["eager", "torchscript", "compile"]
    assert resnet50["resolution_means"] == "Height and width of an image"
    assert resnet50["sizes"]["test"] == {"batch_size": 2, "resolution": 64}
    assert resnet50["dataset_shapes"] == ["mnist", "cifar10", "stl10", "pascal"]
    assert resnet50["offloads"] == ["none", "parameters", "activations"]


def test_the_table_of_workloads_says_levels_in_a_few_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["workloads"]) == 0
    lines = capsys.readouterr().out.splitlines()
    reported = {line.split()[1]: " ".join(line.split()[3:6]) for line in lines if line[:1].strip()}
    assert reported["resnet50"].startswith("all batch_size")
    assert reported["lennard_jones"].startswith(("all but torchscript", "eager, compile"))


def test_workloads_are_listed_by_domain_and_lists_are_text_outside_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["workloads", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    domains = [DOMAINS.index(row["domain"]) for row in rows]
    assert domains == sorted(domains)
    resnet50 = next(row for row in rows if row["name"] == "resnet50")
    assert resnet50["sizes"] == "test: batch_size 2, resolution 64; gpu: batch_size 64, resolution 224"
    assert resnet50["defaults"] == "batch_size 8, resolution 224"
