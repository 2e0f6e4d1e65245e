"""What a check tells beyond its verdicts: causes, commands that work, hostile names, a page of its own."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from tests.builders import host
from tests.runs import make_run, step_rows
from tests.unit.experiments.check.recorded import FINGERPRINT, commit, count_runs, in_turn, record, state
from tracekit.cli.main import run
from tracekit.experiments.check import Options, check
from tracekit.render.cells import code
from tracekit.runs.meta import Timings
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Git
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

BASE = (1_000_000, 1_004_000, 996_000, 1_002_000, 998_000)
SLOWER = tuple(round(1.12 * step) for step in BASE)
HOSTILE = "a|b`c``<script>alert(1)</script>\x1b[31m\ufffe\uffff=HYPERLINK(1)\n::error::x " + "y" * 5_000

OF_AN_OP = {C.RANK: 0, C.PID: 1, C.TID: 1, C.DEPTH: 0, C.STEP: 0}


def out(store: Store, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    found = run(["check", "--against", "main", "--store", str(store.path), *words])
    return found, capsys.readouterr().out


def profiled(store: Store, sha: str, ops: int, steps: tuple[int, ...] = BASE) -> None:
    """Runs whose step holds so many ops of 1 ms each."""
    before = count_runs(store)
    for number, step in enumerate(steps):
        own = [host("aten::mm", at * 1_000_000, (at + 1) * 1_000_000, row_id=at) for at in range(ops)]
        make_run(
            store,
            after_s=in_turn(number, before),
            tables={
                "host_intervals": [{**OF_AN_OP, **row} for row in own],
                "steps": [{**step_rows(0)[0], C.DUR_NS: ops * 1_000_000}],
            },
            git=state(sha),
            command=["tracekit", "collect", "--workload", "resnet50"],
            fingerprint=FINGERPRINT | {"device": "cpu", "gpu": None},
            timings=Timings([step * ops] * 3, [], "perf_counter"),
        )


@pytest.fixture
def slower(git: Git, store: Store) -> None:
    profiled(store, git("rev-parse", "HEAD"), 10)
    profiled(store, commit(git, "topic", branch="topic"), 15)


@pytest.mark.slow_except("markdown")
@pytest.mark.parametrize("output_format", ["table", "markdown", "html"])
@pytest.mark.usefixtures("slower")
def test_what_got_slower_names_its_causes_in_every_format_for_people(
    store: Store, capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    found, text = out(store, capsys, "--metric", "step_time", "--format", output_format)
    assert found == 1
    assert "profiled step 10.00 ms → 15.00 ms; largest changes: in ops +5.00 ms" in text
    assert re.search(r"aten::mm.*5\.00 ms", text, re.DOTALL)
    assert "count +5.00 ms" in text


@pytest.mark.usefixtures("slower")
def test_what_got_slower_names_its_causes_in_json(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    [each] = json.loads(out(store, capsys, "--format", "json")[1])["configurations"]
    assert [(one["op"], one["delta_ns"], one["n_base"], one["n_head"]) for one in each["causes"]] == [
        ("aten::mm", 5_000_000, 10, 15)
    ]
    [each] = json.loads(out(store, capsys, "--format", "json", "--no-explain")[1])["configurations"]
    assert each["causes"] is None


def test_profiles_that_do_not_show_the_change_name_no_cause(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    profiled(store, git("rev-parse", "HEAD"), 10)
    slow = commit(git, "topic", branch="topic")
    profiled(store, slow, 10, steps=SLOWER)
    found, text = out(store, capsys, "--metric", "step_time", "--format", "markdown")
    assert found == 1
    assert "the slowdown does not show in the profiles" in text
    assert "Top causes" not in text


@pytest.fixture
def hostile(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE, workload=HOSTILE)
    record(store, commit(git, "topic", branch="topic"), SLOWER, workload=HOSTILE)


@pytest.mark.slow_except("markdown", "html")
@pytest.mark.parametrize("output_format", ["table", "markdown", "html", "junit", "github", "prometheus"])
def test_a_hostile_name_stays_a_name(
    hostile: None, store: Store, capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    found, text = out(store, capsys, "--format", output_format)
    assert found == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\ufffe\uffff]", text)
    assert not any(line.startswith("::error::x") for line in text.splitlines())
    if output_format in {"html", "markdown", "junit"}:
        assert not re.search(r"(?<!\\)<script", text)
    if output_format == "junit":
        ET.fromstring(text)  # noqa: S314 (our own)
    if output_format == "html":
        assert not re.search(r"(src|href)=|@import|url\(", text)


@pytest.mark.slow
def test_markdown_of_long_commands_stays_below_what_a_comment_holds(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.experiments.check import recorded

    made = recorded.make_run

    def long(*store: Store, **fields: Any) -> Run:
        words = ["tracekit", "collect", "--workload", f"{fields['fingerprint']['workload']}{'w' * 5_000}"]
        return made(*store, **fields | {"command": words})

    monkeypatch.setattr(recorded, "make_run", long)
    base = git("rev-parse", "HEAD")
    for number in range(20):
        record(store, base, BASE[:3], workload=f"work {number}")
    sha = commit(git, "topic", branch="topic")
    for number in range(20):
        record(store, sha, [2 * step for step in BASE[:3]], workload=f"work {number}", device_peak=1 << 32)
    found, text = out(store, capsys, "--format", "markdown")
    assert found == 1
    assert len(text.encode()) < 60_000
    assert "omitted; see `--format json`" in text
    assert "Reproduce: `tracekit check" in text


def test_code_shows_backticks_and_cannot_be_closed() -> None:
    assert [code("a"), code("a`b"), code("``")] == ["`a`", "`` a`b ``", "``` `` ```"]


@pytest.mark.slow
def test_the_printed_commands_hold_what_was_declared(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE, batch_size=8)
    record(store, commit(git, "topic", branch="topic"), BASE, batch_size=16, device_peak=1 << 32)
    _, text = out(store, capsys, "--varying", "batch_size", "--format", "json")
    found: dict[str, Any] = json.loads(text)
    compare, search = found["explain"]
    assert shlex.split(compare)[-2:] == ["--varying", "batch_size"]
    assert " --metric device_peak -- tracekit collect" in search
    capsys.readouterr()
    assert run([*shlex.split(compare)[1:], "--store", str(store.path)]) == 0


def test_the_reproducing_command_checks_the_same_after_a_merge(git: Git, store: Store) -> None:
    """Main goes on to the head: its merge-base with it is then the head itself."""
    record(store, git("rev-parse", "HEAD"), BASE)
    record(store, commit(git, "topic", branch="topic"), SLOWER)
    words = list(check(store, "main").command)
    git("branch", "--force", "main", "topic")
    assert run([*words[1:], "--store", str(store.path)]) == 1


def test_runs_with_changes_are_named_one_by_one(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    runs = record(store, commit(git, "topic", branch="topic"), SLOWER, dirty=True)
    words = list(check(store, "main").command)
    assert words[-2 * len(runs) :] == [word for run in runs for word in ("--run", run.id)]


def test_the_terminal_shows_every_verdict_however_narrow(
    hostile: None, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, text = out(store, capsys)
    assert "regression" in text
    assert "pass" in text
    assert "--format csv" not in text


def test_a_page_is_written_to_a_file(
    hostile: None, store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "check.html"
    assert out(store, capsys, "--format", "html", "-o", str(file)) == (1, "")
    assert '<h1 class="bad">' in file.read_text(encoding="utf-8")


def test_junit_has_the_shape_that_its_readers_know(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    base = git("rev-parse", "HEAD")
    record(store, base, BASE)
    record(store, base, BASE, mode="infer", torch="2.12.0")
    sha = commit(git, "topic", branch="topic")
    record(store, sha, SLOWER)
    record(store, sha, BASE, mode="infer")
    record(store, sha, BASE, workload="unet")
    suite = ET.fromstring(out(store, capsys, "--format", "junit")[1])  # noqa: S314 (our own)
    allowed = {
        "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
        "testcase": {"classname", "name", "time"},
        "failure": {"message", "type"},
        "error": {"message", "type"},
        "skipped": {"message", "type"},
        "system-out": set(),
    }
    for element in suite.iter():
        assert set(element.keys()) <= allowed[element.tag]
    cases = suite.findall("testcase")
    assert int(suite.get("tests", "")) == len(cases)
    for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(suite.get(count, "")) == len(suite.findall(f"testcase/{tag}")) == 1
    assert all(case.get("classname") and case.get("name") for case in cases)


def test_what_was_measured_nowhere_is_told(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    record(store, commit(git, "topic", branch="topic"), BASE)
    gate = check(store, "main")
    assert gate.unmeasured == ("resnet50 infer cpu", "resnet50 infer cuda", "resnet50 train cpu")


def test_a_configuration_of_the_baseline_is_missed_behind_a_nearer_commit_without_it(
    git: Git, store: Store
) -> None:
    first = git("rev-parse", "HEAD")
    record(store, first, BASE)
    record(store, first, BASE, mode="infer")
    record(store, commit(git, "one run"), BASE[:1])
    record(store, commit(git, "topic", branch="topic"), BASE)
    gate = check(store, "main", options=Options(metrics=("step_time",)))
    assert gate.missing == ("resnet50 infer cuda",)


@pytest.mark.slow
def test_a_declared_metric_that_nobody_measured_is_told(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), [0] * 5)
    record(store, commit(git, "topic", branch="topic"), [0] * 5)
    [each] = check(store, "main").configurations
    assert "step_time not measured on either side" in each.notes


@pytest.mark.slow
def test_nothing_measured_is_not_put_down_to_the_baseline(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, git("rev-parse", "HEAD"), [0] * 5)
    record(store, commit(git, "topic", branch="topic"), [0] * 5)
    found, text = out(store, capsys, "--metric", "step_time")
    assert found == 5
    assert "no run has any of the metrics" in text


@pytest.mark.slow
def test_the_head_is_told_where_another_commit_is_checked_out(
    git: Git, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    sha = commit(git, "topic", branch="topic")
    record(store, sha, BASE)
    assert check(store, "main").notes == ()
    git("checkout", "--quiet", "--detach", "main")
    assert f"{sha[:12]}, the commit recorded last" in out(store, capsys)[1]
    assert check(store, "main", runs=["git:topic"]).notes == ()
