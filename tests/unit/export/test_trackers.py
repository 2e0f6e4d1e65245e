"""Runs where experiments are tracked: what is logged, and what the trackers' own packages read of it."""

from __future__ import annotations

import json
import struct
import sys
from collections import defaultdict
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from samples.simulator.planted import memory_ranks
from tests.shared_runs import analyze
from tests.unit.experiments.check.recorded import record
from tracekit.analysis.findings import advise
from tracekit.cli.main import run as run_command
from tracekit.errors import MissingDependencyError, UnusableInputError
from tracekit.export.trackers import Row, Summary, log_run, summarize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the trackers
STEPS = 8
HOSTILE = "<img src=x>|`\x1b[2J"


@pytest.fixture(scope="module")
def run(shared_runs: SharedRuns) -> Run:
    return shared_runs.simulated(memory_ranks.memory(leak=1 << 20, steps=STEPS))


@pytest.fixture(scope="module")
def summary(run: Run) -> Summary:
    return summarize(run, advise(run, by=analyze), by=analyze)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Trackers neither ask the network nor find settings of this machine."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT", "WANDB_MODE", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_CONFIG_DIR": str(tmp_path / "config"),
        "WANDB_CACHE_DIR": str(tmp_path / "cache"),
        "WANDB_DATA_DIR": str(tmp_path / "data"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


def scalars(summary: Summary) -> dict[str, dict[int, float]]:
    """Numbers by name and step."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for step, values in summary.by_step():
        for name, value in values.items():
            found[name][step] = value
    return found


def test_a_summary_has_times_memory_verdict_and_findings(run: Run, summary: Summary) -> None:
    found = scalars(summary)
    steps = run.table("steps")
    assert sorted(found["tracekit/profiled_step_ms"]) == steps["step"].tolist()
    last = max(steps["step"])
    assert found["tracekit/device_peak_mib"] == {last: 8 + STEPS}
    parts = [value[last] for name, value in found.items() if name.startswith("tracekit/part/")]
    assert sum(parts) == pytest.approx(1)
    assert {row.code for row in summary.findings} >= {"memory_leak"}
    assert summary.findings[0].saving_ms_per_step is not None or len(summary.findings) == 1
    assert summary.facts["run_id"] == run.id
    assert summary.verdict


def test_measured_times_and_peaks_come_before_those_of_the_profile(store: Store) -> None:
    (run,) = record(store, None, [2_000_000], device_peak=3 << 20, host_peak=1 << 30, label="mine")
    found = scalars(summarize(run, advise(run), by=tracekit.analyze))
    assert [*found["tracekit/step_time_ms"].values()] == [2.0]
    assert [*found["tracekit/device_peak_mib"].values()] == [3.0]
    assert [*found["tracekit/host_peak_mib"].values()] == [1024.0]


@pytest.mark.parametrize(
    ("to", "package"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow"), ("wandb", "wandb")]
)
def test_a_missing_package_is_named_with_its_extra(
    to: str, package: str, summary: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=package) as raised:
        log_run(summary, to=to, folder=tmp_path / "there")
    assert raised.value.hint == f"pip install 'tracekit-torch[{package}]'"
    assert not (tmp_path / "there").exists()


def test_a_summary_is_of_the_whole_run(run: Run, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["export", str(run.path), "--to", "mlflow", "--store", str(store.path)]
    assert run_command([*asked, "--steps", "1"]) == 2
    assert "leave --steps out" in capsys.readouterr().err
    assert run_command([*asked, "-o", "-"]) == 2


@pytest.mark.slow
def test_the_command_prints_where_it_logged(
    run: Run, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    asked = ["export", str(run.path), "--to", "tensorboard", "--store", str(store.path)]
    assert run_command(asked) == 0
    assert capsys.readouterr().out == f"{run.id}-tensorboard\n"
    assert tracekit.export(run, "logs", to="tensorboard", store=store.path) == Path("logs")
    assert len([*Path("logs").iterdir()]) == len([*Path(f"{run.id}-tensorboard").iterdir()]) == 1


def test_tensorboard_reads_scalars_and_texts(summary: Summary) -> None:
    accumulator: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = Path("logs")
    assert log_run(summary, to="tensorboard", folder=folder) == "logs"
    events = accumulator.EventAccumulator("logs").Reload()
    for name, values in scalars(summary).items():
        assert {event.step: event.value for event in events.Scalars(name)} == pytest.approx(values)
        assert {event.wall_time for event in events.Scalars(name)} == {summary.created_s}
    texts = {
        tag: events.Tensors(f"tracekit/{tag}")[0].tensor_proto.string_val[0]
        for tag in ("verdict", "findings")
    }
    assert texts["verdict"].decode() == summary.verdict
    assert b"| memory&#95;leak |" in texts["findings"]
    with pytest.raises(UnusableInputError, match="already has run"):
        log_run(summary, to="tensorboard", folder=folder)
    log_run(summary, to="tensorboard", folder=folder, overwrite=True)
    assert len([*folder.iterdir()]) == 1


def test_names_of_a_trace_are_text_in_tensorboard(summary: Summary) -> None:
    accumulator: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    hostile = replace(summary, findings=(Row("high", "code", HOSTILE, HOSTILE, None, None),))
    log_run(hostile, to="tensorboard", folder=Path("logs"))
    events = accumulator.EventAccumulator("logs").Reload()
    table = events.Tensors("tracekit/findings")[0].tensor_proto.string_val[0].decode()
    assert "<" not in table
    assert table.splitlines()[-1].count("|") == table.splitlines()[0].count("|")


def test_mlflow_reads_metrics_settings_and_the_table(run: Run, summary: Summary) -> None:
    mlflow: Any = pytest.importorskip("mlflow")
    folder = Path("tracking").absolute()
    log_run(summary, to="mlflow", folder=folder)
    client = mlflow.MlflowClient(tracking_uri=folder.as_uri())
    experiment = client.get_experiment_by_name("tracekit")
    (logged,) = client.search_runs([experiment.experiment_id])
    for name, values in scalars(summary).items():
        history = client.get_metric_history(logged.info.run_id, name)
        assert {metric.step: metric.value for metric in history} == pytest.approx(values)
    assert logged.data.params["tracekit/run_id"] == run.id
    assert logged.data.tags["tracekit/verdict"] == summary.verdict
    assert (logged.info.status, logged.info.run_name) == ("FINISHED", summary.name)
    (table,) = folder.rglob("findings.json")
    content = json.loads(table.read_text())
    assert [row[content["columns"].index("code")] for row in content["data"]] == [
        row.code for row in summary.findings
    ]
    log_run(summary, to="mlflow", folder=folder)  # another export is another run of the same experiment
    assert len(client.search_runs([experiment.experiment_id])) == 2


def scan_log(content: bytes) -> Iterator[bytes]:
    """Records of a log in LevelDB's format: blocks of 32 KiB, of fragments with checksum, length and type."""
    place, record = 7, b""  # after the header of the file
    while place < len(content):
        if (left := 32_768 - place % 32_768) < 7:
            place += left
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)
        record += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last fragment
            yield record
            record = b""


def test_wandb_writes_a_run_to_synchronize_later(summary: Summary) -> None:
    internal: Any = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    place = Path(log_run(summary, to="wandb", folder=Path("offline")))
    import_module("wandb").teardown()  # as at the end of a process: its service writes what it buffered
    (file,) = place.glob("*.wandb")
    found: dict[str, dict[int, float]] = defaultdict(dict)
    last: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for data in scan_log(file.read_bytes()):
        item = internal.Record()
        item.ParseFromString(data)
        values = {"".join(one.nested_key) or one.key: json.loads(one.value_json) for one in item.history.item}
        for name, value in values.items():
            found[name][values["_step"]] = value
        last |= {
            "".join(one.nested_key) or one.key: json.loads(one.value_json) for one in item.summary.update
        }
        config |= {one.key: json.loads(one.value_json) for one in item.run.config.update}
    for name, expected in scalars(summary).items():
        assert found[name] == pytest.approx(expected)
    assert last["tracekit/verdict"] == summary.verdict
    assert config["run_id"] == summary.run_id
    (table,) = place.rglob("*.table.json")
    assert [row[1] for row in json.loads(table.read_text())["data"]] == [row.code for row in summary.findings]


def test_what_a_tracker_refuses_is_an_error_of_one_line(summary: Summary) -> None:
    pytest.importorskip("mlflow")
    Path("taken").write_text("x")
    with pytest.raises(UnusableInputError, match="mlflow cannot log the run: "):
        log_run(summary, to="mlflow", folder=Path("taken"))
