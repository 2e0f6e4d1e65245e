"""`tracekit check` at the command line: exit codes and formats."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from click import Context

from tests.unit.experiments.check.recorded import commit, record
from tracekit.cli.check import command
from tracekit.cli.main import run
from tracekit.experiments.options import CheckOptions as Options

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Git
    from tracekit.runs.store import Store

BASE = (1_000_000, 1_004_000, 996_000, 1_002_000, 998_000)
SLOWER = tuple(round(1.12 * step) for step in BASE)


@pytest.fixture
def head(git: Git, store: Store) -> str:
    """A commit of a branch with slower runs than those of main; a second configuration is as it was."""
    base = git("rev-parse", "HEAD")
    record(store, base, BASE)
    record(store, base, BASE, device="cpu", gpu=None)
    sha = commit(git, "topic", branch="topic")
    record(store, sha, SLOWER)
    record(store, sha, BASE, device="cpu", gpu=None)
    return sha


def checked(store: Store, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run(["check", "--against", "main", "--store", str(store.path), *words])
    return code, capsys.readouterr().out


def test_the_command_checks_as_the_library_does() -> None:
    defaults = {parameter.name: parameter.get_default(Context(command)) for parameter in command.params}
    plain = Options()
    assert (defaults["least"], defaults["tolerance"]) == (plain.least, plain.tolerance) == (3, 1 << 20)
    assert defaults["metrics"] == plain.metrics
    assert defaults["allow_dirty"] is plain.allow_dirty is False


def test_json_holds_verdict_sides_and_metrics(
    head: str, store: Store, git: Git, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = checked(store, capsys, "--format", "json")
    found: dict[str, Any] = json.loads(out)
    assert (code, found["schema"], found["verdict"], found["exit_code"]) == (
        1,
        "tracekit.check/1",
        "regression",
        1,
    )
    cuda, cpu = found["configurations"]
    assert (cuda["name"], cuda["head"]["commit"], cuda["base"]["distance"]) == (
        "resnet50 train cuda",
        head,
        0,
    )
    assert cuda["base"]["commit"] == found["merge_base"] == git("rev-parse", "main")
    assert {one["name"]: one["verdict"] for one in cuda["metrics"]} == {
        "step_time": "regression",
        "device_peak": "pass",
        "host_peak": "pass",
    }
    assert {one["verdict"] for one in cpu["metrics"]} == {"pass"}
    assert all(one["p_adjusted"] >= one["p"] for one in cuda["metrics"] if one["p"] is not None)


def test_people_read_change_interval_detectable_effect_and_what_to_do(
    head: str, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, out = checked(store, capsys)
    assert f"Regression: resnet50 train cuda step_time +12.0%, {head[:12]} against main" in out
    for reported in ("change", "interval", "detectable", "the merge-base", "tracekit diff "):
        assert reported in out
    assert f"..{head[:12]} -- tracekit collect --workload resnet50" in out


def test_markdown_reproduces_the_check_and_stays_small(
    head: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = checked(store, capsys, "--format", "markdown", "--threshold", "5%")
    assert out.startswith("## ❌ Regression: ")
    assert len(out.encode()) < 60_000
    (command,) = [line for line in out.splitlines() if line.startswith("Reproduce: `")]
    words = command.removeprefix("Reproduce: `tracekit ").removesuffix("`").split()
    assert run([*words, "--store", str(store.path)]) == 1


@pytest.mark.slow
def test_markdown_of_very_many_configurations_stays_below_what_a_comment_holds(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    base = git("rev-parse", "HEAD")
    names = [f"{'long' * 100}-{number}" for number in range(60)]
    for name in names:
        record(store, base, BASE[:1], workload=name)
    sha = commit(git, "topic", branch="topic")
    for name in names:
        record(store, sha, SLOWER[:1], workload=name, torch="2.14.0")
    code, out = checked(store, capsys, "--format", "markdown")
    assert code == 4
    assert "Reproduce: `" in out
    assert len(out.encode()) < 60_000


@pytest.mark.slow
def test_junit_has_a_case_for_each_metric(
    head: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = checked(store, capsys, "--format", "junit", "--metric", "step_time,device_peak")
    suite = ET.fromstring(out)  # noqa: S314 (our own)
    cases = {(case.get("classname"), case.get("name")): [child.tag for child in case] for case in suite[:-1]}
    assert cases == {
        ("resnet50 train cuda", "step_time"): ["failure"],
        ("resnet50 train cuda", "device_peak"): [],
        ("resnet50 train cpu", "step_time"): [],
        ("resnet50 train cpu", "device_peak"): [],
    }
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "0")


def test_otlp_is_a_request_of_opentelemetry_with_the_metrics_of_prometheus(
    head: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    service: Any = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    from google.protobuf import json_format

    before = time.time_ns()
    code, out = checked(store, capsys, "--format", "otlp", "--metric", "step_time")
    assert out.count("\n") == 1
    request = json_format.Parse(out, service.ExportMetricsServiceRequest())
    (resource,) = request.resource_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes} == {
        "service.name": "tracekit"
    }
    (scope,) = resource.scope_metrics
    found: dict[str, float] = {}
    for metric in scope.metrics:
        for point in metric.gauge.data_points:
            assert before <= point.time_unix_nano <= time.time_ns()
            labels = ",".join(f'{one.key}="{one.value.string_value}"' for one in point.attributes)
            found[f"{metric.name}{{{labels}}}" if labels else metric.name] = point.as_double
    assert {metric.name: metric.unit for metric in scope.metrics}["tracekit_check_seconds"] == "s"
    _, text = checked(store, capsys, "--format", "prometheus", "--metric", "step_time")
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert found == pytest.approx({name: float(value) for name, value in samples.items()})
    assert found["tracekit_check_exit_code"] == code == 1


@pytest.mark.slow
def test_a_result_is_written_to_more_files_as_their_endings_say(
    head: str, store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = ("all.md", "all.json", "all.xml")
    also = [word for name in names for word in ("--also", str(tmp_path / name))]
    code, out = checked(store, capsys, "--format", "github", *also)
    assert code == 1
    assert out.startswith("::error ")
    _, text = checked(store, capsys, "--format", "markdown")
    assert (tmp_path / "all.md").read_text() == text
    assert json.loads((tmp_path / "all.json").read_text())["exit_code"] == 1
    assert ET.parse(tmp_path / "all.xml").getroot().get("failures") == "1"  # noqa: S314 (our own)
    refused, _ = checked(store, capsys, "--also", str(tmp_path / "all.txt"))
    assert refused == 2


def test_prometheus_has_both_sides_in_seconds_and_the_verdict(
    head: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = checked(store, capsys, "--format", "prometheus", "--metric", "step_time")
    samples = dict(line.rsplit(" ", 1) for line in out.splitlines() if not line.startswith("#"))
    slower = 'configuration="resnet50 train cuda",metric="step_time"'
    assert samples["tracekit_check_exit_code"] == str(code) == "1"
    base, head_seconds = (
        float(samples[f'tracekit_check_seconds{{{slower},side="{side}"}}']) for side in ("base", "head")
    )
    assert base == pytest.approx(0.001, rel=0.01)
    ratio = float(samples[f'tracekit_check_ratio{{{slower},bound="estimate"}}'])
    assert ratio == pytest.approx(head_seconds / base)
    assert float(samples[f'tracekit_check_ratio{{{slower},bound="low"}}']) > 1.05
    assert samples[f'tracekit_check_verdict{{{slower},verdict="regression"}}'] == "1"
    types = [line.split()[2] for line in out.splitlines() if line.startswith("# TYPE")]
    assert sorted(types) == sorted({name.split("{")[0] for name in samples})  # each is declared once


def test_github_annotates_the_regression_alone(
    head: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = checked(store, capsys, "--format", "github")
    (line,) = out.splitlines()
    assert line.startswith("::error title=resnet50 train cuda%3A step_time::regression: +12.0%25 (95%25")


@pytest.mark.slow
def test_a_label_cannot_start_a_workflow_command_of_its_own(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE, workload="a\n::error::b")
    record(store, commit(git, "topic", branch="topic"), SLOWER, workload="a\n::error::b")
    for output_format in ("github", "table", "markdown"):
        _, out = checked(store, capsys, "--format", output_format)
        assert not any(line.startswith("::error::b") for line in out.splitlines())


@pytest.mark.slow
def test_not_comparable_says_how_to_declare_it(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    record(store, commit(git, "topic", branch="topic"), BASE, torch="2.14.0")
    code, out = checked(store, capsys)
    assert code == 4
    assert "--varying FIELD" in out
    assert "2.14.0" in out
    assert checked(store, capsys, "--varying", "torch")[0] == 0
    suite = ET.fromstring(checked(store, capsys, "--format", "junit")[1])  # noqa: S314 (our own)
    assert suite.get("errors") == "1"


def test_nothing_to_compare_with_is_nothing_measured(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    assert run(["check", "--against", "main", "--store", str(store.path)]) == 5
    assert "no older commit has runs" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "code"), [((), 5), (("--allow-missing-baseline",), 0)])
def test_a_first_run_is_a_result_in_every_format(
    words: tuple[str, ...], code: int, git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    reports = {}
    for output_format in ("json", "github", "junit", "markdown", "html", "table"):
        found, reports[output_format] = checked(store, capsys, *words, "--format", output_format)
        assert found == code
    content = json.loads(reports["json"])
    assert (content["verdict"], content["exit_code"]) == ("no baseline", code)
    assert reports["github"].startswith(
        "::warning title=tracekit::No baseline: resnet50 train cuda has none yet"
    )
    suite = ET.fromstring(reports["junit"])  # noqa: S314 (our own)
    assert suite[0][0].tag == "skipped"
    assert suite[0][0].get("message") == "no baseline"
    assert reports["markdown"].startswith("## ⚠️ No baseline: ")
    assert "No baseline: " in reports["html"]
    policy = "passes by --allow-missing-baseline" if words else "to pass, use --allow-missing-baseline"
    assert all(policy in reports[name] for name in ("github", "markdown", "html", "table", "junit"))


@pytest.mark.parametrize(("chosen", "code", "policy"), [("fail", 3, "fails"), ("pass", 0, "passes")])
def test_what_cannot_be_told_passes_only_by_choice_and_never_as_a_pass(
    chosen: str, code: int, policy: str, git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    record(store, commit(git, "topic", branch="topic"), [900_000, 1_300_000, 1_000_000, 1_400_000, 850_000])
    words = ("--metric", "step_time", "--on-unknown", chosen, "--format")
    found, text = checked(store, capsys, *words, "markdown")
    assert found == code
    assert text.startswith("## ⚠️ Cannot tell: ")
    assert f"({policy} by --on-unknown {chosen})" in text.replace("\\", "")
    content = json.loads(checked(store, capsys, *words, "json")[1])
    assert (content["verdict"], content["exit_code"], content["on_unknown"]) == ("cannot tell", code, chosen)
    assert checked(store, capsys, *words, "github")[1].startswith("::warning ")


def test_an_unknown_metric_or_revision_is_unusable(
    head: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(store, capsys, "--metric", "speed")[0] == 2
    assert run(["check", "--against", "nowhere", "--store", str(store.path)]) == 2
    assert "no git revision 'nowhere'" in capsys.readouterr().err
