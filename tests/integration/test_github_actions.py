"""The action, and the workflow of the documentation: their steps run, word for word, on a real repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import click
import pytest

from tracekit.cli.main import cli
from tracekit.registry import VERSION

if TYPE_CHECKING:
    from tests.conftest import Git

yaml = pytest.importorskip("yaml")
pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "github-actions.yml"
ACTION = ROOT / "action.yml"
WORKLOAD = """
import level
import torch

from tracekit.workloads.base import Workload


class Program:
    def __init__(self, options):
        self.matrix = torch.randn(128, 128)
        self.held = torch.ones(level.TIMES, 1_000_000)  # 4 MB for each product

    def step(self):
        found = self.matrix
        for _ in range(level.TIMES):
            found = torch.mm(found, self.matrix).tanh()
        return found.sum()


TINY = Workload(
    name="tiny", domain="other", summary="Products of one matrix", parameters=0, modes=("train", "infer"),
    levels=("eager",), dtypes=("float32",), defaults={"batch_size": 1, "resolution": 8},
    smallest_resolution=1, build=Program,
)
"""
TRACEKIT = f'exec "{sys.executable}" -c "from tracekit.cli.main import main; main()" "$@"'
RECORD = """
import os, pathlib, subprocess
from level import TIMES
from tests.unit.experiments.check.recorded import record
from tracekit.runs.store import Store

store = Store(pathlib.Path(os.environ["TRACEKIT_STORE"]))
sha = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
noise = len(store.runs()) % 3 * 1_000
record(store, sha, [TIMES * 100_000 + noise], host_peak=(1 << 29) + (TIMES << 22))
"""
"""Stores what a collection would: step times and memory are those of that many products."""
_EVENT = "github.event.pull_request."
TOOLS = {
    "tracekit": TRACEKIT,
    "pip": 'echo "pip $*" >> "$TOOL_LOG"',
    "gh": 'echo "gh $*" >> "$TOOL_LOG"; case "$*" in *--paginate*) echo "$COMMENT_ID" ;; esac',
}


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return found


@dataclass
class Runner:
    """Runs the steps of a job as a runner does: `bash -e`, one after the other, until one fails."""

    folder: Path
    values: dict[str, str]
    env: dict[str, str]
    outputs: dict[str, str] = field(default_factory=dict)

    def job(self, job: dict[str, Any]) -> list[tuple[str, int]]:
        """The steps that ran, each with its exit code."""
        ran: list[tuple[str, int]] = []
        for step in job["steps"]:
            if "run" in step and not (ran and ran[-1][1]) and self.holds(step.get("if", "always()")):
                ran.append((step.get("name", step["run"]), self._step(step, job.get("env", {}))))
        return ran

    def action(self, action: dict[str, Any], **given: str) -> list[tuple[str, int]]:
        """The steps of a composite action that ran, with its inputs or their defaults."""
        for name, specified in action["inputs"].items():
            value = given.get(name.replace("-", "_"), specified.get("default"))
            assert value is not None, f"the input {name} is required"
            self.values[f"inputs.{name}"] = self._filled(value)
        return self.job(action["runs"])

    def _step(self, step: dict[str, Any], job_env: dict[str, Any]) -> int:
        own = {name: self._filled(str(value)) for name, value in (job_env | step.get("env", {})).items()}
        files = {name: self.folder / name for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        places = {name: str(file) for name, file in files.items()}
        script = ["bash", "-eo", "pipefail", "-c", self._filled(step["run"])]
        done = subprocess.run(script, env=own | self.env | places, check=False)
        for name, target in (("GITHUB_ENV", self.env), ("GITHUB_OUTPUT", self.outputs)):
            if files[name].exists():
                target |= dict(line.split("=", 1) for line in files[name].read_text().splitlines())
                files[name].unlink()
        self.values |= {f"steps.{step.get('id')}.outputs.{key}": one for key, one in self.outputs.items()}
        return done.returncode

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: self._value(match[1]), text)

    def _value(self, expression: str) -> str:
        """The first of the names that has a value; only a pull request has values of its own."""
        for name in expression.split(" || "):
            value = self.values[name] if not name.startswith(_EVENT) else self.values.get(name, "")
            if value:
                return value
        return ""

    def holds(self, condition: str) -> bool:
        """Whether a condition of names, texts and `always()` holds."""
        for part in condition.split(" && "):
            first, sign, second = re.fullmatch(r"(\S+)(?: (==|!=) (\S+))?", part).groups()  # type: ignore[union-attr]
            if first == "always()":
                continue
            equal = self._value(first) == (second.strip("'") if second[0] == "'" else self._value(second))
            if equal != (sign == "=="):
                return False
        return True

    @property
    def log(self) -> list[str]:
        """What was asked of tools that are none."""
        return Path(self.env["TOOL_LOG"]).read_text().splitlines()


@pytest.fixture
def runner(git: Git, tmp_path: Path) -> Runner:
    """A repository with a workload of its own; main goes on after a branch left it."""
    tools, package = tmp_path / "a folder of tools", Path("tiny-1.0.dist-info")
    for path in (tools, package):
        path.mkdir()
    for name, script in TOOLS.items():
        (tools / name).write_text(f"#!/bin/bash\n{script}\n")
        (tools / name).chmod(0o755)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[tracekit.workloads]\ntiny = tiny:TINY\n")
    Path("tiny.py").write_text(WORKLOAD)
    Path("pyproject.toml").write_text('[project]\nname = "tiny"\nversion = "1.0"\n')
    committed(git, 30)
    git("checkout", "--quiet", "-b", "topic")
    base = {
        "github.event.pull_request.number": "7",
        "github.token": "none",
        "github.repository": "example/tiny",
    }
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(tools), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "RUNNER_TEMP": str(tmp_path),
        "TOOL_LOG": str(tmp_path / "log.txt"),
        "COMMENT_ID": "",
    }
    return Runner(tmp_path, base, env)


TINY = {
    "install": "",
    "collect": "--workload tiny --device cpu --steps 5 --warmup 1 --threads 1 --mode infer\n",
}
"""Inputs of the action: it finds tracekit installed."""


def committed(git: Git, times: int, note: str = "") -> str:
    Path("level.py").write_text(f"TIMES = {times}  # {note}\n")
    git("add", ".")
    git("commit", "--quiet", f"--message={times} products")
    return git("rev-parse", "HEAD")


def opened(git: Git, runner: Runner, times: int) -> None:
    """A pull request from a branch of that many products to a main that has another commit."""
    runner.values["github.event.pull_request.head.sha"] = committed(git, times, "topic")
    git("checkout", "--quiet", "main")
    runner.values["github.event.pull_request.base.sha"] = committed(git, 300, "main went on")
    git("checkout", "--quiet", "--detach", runner.values["github.event.pull_request.head.sha"])


@pytest.mark.parametrize(
    ("given", "installed"),
    [
        (
            None,
            f"pip install --quiet -c {ROOT}/constraints.txt "
            f"--extra-index-url https://download.pytorch.org/whl/cpu {ROOT}[torch]",
        ),
        ("tracekit-torch[torch]==0.1.0", "pip install --quiet tracekit-torch[torch]==0.1.0"),
        ("", ""),
    ],
)
def test_the_action_installs_its_own_revision_unless_told_otherwise(
    given: str | None, installed: str, runner: Runner, action: dict[str, Any]
) -> None:
    default = action["inputs"]["install"]["default"]
    runner.values["inputs.install"] = default if given is None else given
    runner.env["GITHUB_ACTION_PATH"] = str(ROOT)
    assert runner.job({"steps": action["runs"]["steps"][:1]}) == [("Install", 0)]
    assert Path(runner.env["TOOL_LOG"]).is_file() is bool(installed)
    assert not installed or runner.log == [installed]


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("given", "project", "installed"),
    [
        ("", True, "pip install --quiet --no-deps ."),
        ("", False, ""),
        ("pip install -e .", True, "pip install -e ."),
    ],
)
def test_the_action_installs_a_project_that_has_a_file(
    given: str, project: bool, installed: str, git: Git, recording: Runner, action: dict[str, Any]
) -> None:
    if not project:
        git("rm", "--quiet", "pyproject.toml")
        git("commit", "--quiet", "--message=No package")
    recording.values["github.sha"] = git("rev-parse", "HEAD")
    ran = recording.action(action, **TINY | {"repeat": "1", "install_project": given})
    assert [code for _, code in ran] == [0, 0, 0, 0]
    assert Path(recording.env["TOOL_LOG"]).is_file() is bool(installed)
    assert not installed or recording.log == [installed]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_planted_regression_fails_the_job_and_is_commented(
    git: Git, runner: Runner, workflow: dict[str, Any], action: dict[str, Any]
) -> None:
    opened(git, runner, 60)
    ran = runner.action(action, **TINY)
    assert [code for _, code in ran] == [0, 0, 0, 1]
    assert runner.outputs["code"] == "1"
    text = Path("check.md").read_text(encoding="utf-8")
    # a busy machine may hide the time, in the steps or in their profile; it cannot hide memory
    metric = re.match(r"## ❌ Regression: tiny infer cpu (step\\_time|host\\_peak)", text)
    assert metric
    if metric[1] == "step\\_time" and "tell no causes" not in text:
        assert re.search(r"\| aten::(mm|tanh) \|.*\| 30 \| 60 \|", text)
    assert (runner.folder / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8") == text
    assert int(ET.parse("check.xml").getroot().get("failures", "")) >= 1  # noqa: S314 (our own)
    assert '<h1 class="bad">' in Path("check.html").read_text(encoding="utf-8")
    assert runner.log.count("pip install --quiet --no-deps .") == 10

    assert runner.job(workflow["jobs"]["comment"])[-1][1] == 0
    assert runner.log[-1] == "gh pr comment 7 --body-file comment.md"
    assert Path("comment.md").read_text(encoding="utf-8") == f"<!-- tracekit check -->\n{text}"
    runner.env["COMMENT_ID"] = "11"
    assert runner.job(workflow["jobs"]["comment"])[-1][1] == 0
    assert "--method PATCH repos/example/tiny/issues/comments/11 --field body=@comment.md" in runner.log[-1]


@pytest.fixture
def recording(runner: Runner, tmp_path: Path) -> Runner:
    """A repository where `tracekit collect` stores runs whose step times are known beforehand."""
    script = tmp_path / "record.py"
    script.write_text(RECORD)
    tool = tmp_path / "a folder of tools" / "tracekit"
    tool.write_text(f'#!/bin/bash\n[ "$1" = collect ] && exec "{sys.executable}" "{script}"\n{TRACEKIT}\n')
    return runner


@pytest.mark.slow
@pytest.mark.parametrize(("times", "code"), [(30, "0"), (60, "1")])
def test_a_branch_is_compared_with_where_it_left_main(
    times: int, code: str, git: Git, recording: Runner, workflow: dict[str, Any], action: dict[str, Any]
) -> None:
    """Main has become slower than either since."""
    opened(git, recording, times)
    ran = recording.action(action, **TINY)
    assert [one for _, one in ran] == [0, 0, 0, int(code)]
    assert json.loads(Path("findings.sarif").read_text())["version"] == "2.1.0"
    assert recording.outputs["code"] == code
    text = Path("check.md").read_text(encoding="utf-8")
    assert text.startswith("## ❌ Regression: " if code == "1" else "## ✅ Pass"), text
    failures = ET.parse("check.xml").getroot().get("failures")  # noqa: S314 (our own)
    assert failures == ("2" if code == "1" else "0")
    assert recording.log.count("pip install --quiet --no-deps .") == 10
    assert recording.job(workflow["jobs"]["comment"])[-1][1] == 0
    assert recording.log[-1] == "gh pr comment 7 --body-file comment.md"


@pytest.mark.slow
def test_a_first_run_passes_with_what_the_head_has(
    git: Git, recording: Runner, action: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """The program is new, so that the base cannot be recorded."""
    opened(git, recording, 30)
    recording.values[f"{_EVENT}base.sha"] = git("rev-list", "--max-parents=0", "HEAD")
    assert not git("ls-tree", recording.values[f"{_EVENT}base.sha"], "level.py")
    assert [code for _, code in recording.action(action, **TINY)] == [0, 0, 0, 0]
    assert "::warning title=tracekit::the base " in capfd.readouterr().out
    assert "No baseline" in Path("check.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_without_a_base_the_head_is_described(git: Git, recording: Runner, action: dict[str, Any]) -> None:
    """As on a push, which has no pull request."""
    recording.values["github.sha"] = git("rev-parse", "HEAD")
    ran = recording.action(action, **TINY | {"repeat": "1"})
    assert [code for _, code in ran] == [0, 0, 0, 0]
    assert recording.log.count("pip install --quiet --no-deps .") == 1
    summary = (recording.folder / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
    assert "integrity" in summary


BENCH = """
import os
from level import TIMES

print(f"step time: {TIMES + os.getpid() % 7 / 100} ms")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("times", "code"), [(30, "0"), (60, "1")])
def test_a_command_is_compared_at_both_commits(
    times: int, code: str, git: Git, runner: Runner, action: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    git("checkout", "--quiet", "main")
    Path("bench.py").write_text(BENCH)
    committed(git, 30, "with a benchmark")
    git("checkout", "--quiet", "-B", "topic")
    opened(git, runner, times)
    asked = f"--max-repeat 5 --value 'step time: ([0-9.]+) ms' -- {sys.executable} bench.py"
    ran = runner.action(action, install="", ab=asked)
    assert [one for _, one in ran] == [0, 0, int(code)]
    assert runner.outputs["code"] == code
    assert ("::error" in capfd.readouterr().out) is (code == "1")
    text = Path("check.md").read_text(encoding="utf-8")
    assert text.startswith("## ❌ Regression" if code == "1" else "## ✅ Pass"), text
    assert ET.parse("check.xml").getroot().get("failures") == code  # noqa: S314 (our own)
    assert Path("check.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unknown", "base", "code"), [("fail", True, 3), ("pass", True, 0), ("fail", False, 0)]
)
def test_traces_of_other_jobs_are_compared(
    unknown: str, base: bool, code: int, git: Git, runner: Runner, action: dict[str, Any]
) -> None:
    """One trace per side tells causes, but no verdict; without one of the base, the findings are listed."""
    opened(git, runner, 30)
    traces = ROOT / "tracekit" / "cli" / "samples"
    given = {"import-base": str(traces / "before.json.gz")} if base else {}
    given |= {"import": str(traces / "after.json.gz"), "on-unknown": unknown, "install": ""}
    ran = runner.action(action, **{name.replace("-", "_"): value for name, value in given.items()})
    assert [one for _, one in ran] == [0, 0, 0, int(code != 0)]
    assert runner.outputs["code"] == str(code)
    text = Path("check.md").read_text(encoding="utf-8")
    assert text.startswith("# Findings of ") is not base
    assert "aten::embedding" in text
    assert (runner.folder / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8") == text
    assert json.loads(Path("findings.sarif").read_text())["version"] == "2.1.0"


ASKED = 'printf "%s\\0" "$@" >> "$ASKED"; printf "\\n" >> "$ASKED"'
"""Notes the arguments, and measures nothing."""


def test_both_commits_are_recorded_in_turns_and_checked_by_commands_that_exist(
    git: Git, runner: Runner, action: dict[str, Any], tmp_path: Path
) -> None:
    """The commands are parsed by the command line of tracekit; what they do is tested in the slow tier."""
    (tmp_path / "a folder of tools" / "tracekit").write_text(f"#!/bin/bash\n{ASKED}\n")
    runner.env["ASKED"] = str(tmp_path / "asked")
    opened(git, runner, 60)
    runner.action(action, **TINY, threshold="7%")
    asked = [line.split("\0")[:-1] for line in (tmp_path / "asked").read_text().split("\n")[:-1]]
    assert [words[0] for words in asked].count("collect") == 10
    assert {words[0] for words in asked} == {"collect", "check", "findings"}
    (check,) = [words for words in asked if words[0] == "check"]
    assert check[check.index("--threshold") + 1] == "7%"
    assert runner.log.count("pip install --quiet --no-deps .") == 10
    for name, *words in asked:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        command.make_context(name, words)


@pytest.mark.parametrize(
    ("code", "fails"), [("0", 0), ("3", 1), ("4", 0), ("1", 1), ("2", 1), ("5", 1), ("", 1)]
)
def test_a_check_that_could_not_be_made_does_not_pass(
    tmp_path: Path, action: dict[str, Any], code: str, fails: int
) -> None:
    last = {"steps": action["runs"]["steps"][-1:]}
    runner = Runner(tmp_path, {"steps.check.outputs.code": code}, dict(os.environ))
    assert [one for _, one in runner.job(last)] == [fails]


def test_a_fork_gets_no_rights(workflow: dict[str, Any]) -> None:
    triggers = workflow[True]  # YAML 1.1 reads `on` as a truth
    assert list(triggers) == ["pull_request"]
    assert workflow["permissions"] == {"contents": "read"}
    check, comment = workflow["jobs"]["check"], workflow["jobs"]["comment"]
    assert "permissions" not in check
    checkout = check["steps"][0]["with"]
    assert (checkout["fetch-depth"], checkout["persist-credentials"]) == (0, False)
    assert comment["permissions"] == {"pull-requests": "write"}
    assert not any("checkout" in step.get("uses", "") for step in comment["steps"])
    assert comment["if"].startswith("always() && ")


@pytest.mark.slow
def test_a_fork_gets_a_summary_without_a_token_and_no_comment(
    git: Git, recording: Runner, workflow: dict[str, Any], action: dict[str, Any]
) -> None:
    opened(git, recording, 30)
    recording.env = {name: value for name, value in recording.env.items() if "TOKEN" not in name}
    assert [code for _, code in recording.action(action, **TINY)] == [0, 0, 0, 0]
    summary = (recording.folder / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
    assert summary.startswith("## ✅ Pass")
    assert not any(line.startswith("gh ") for line in recording.log)
    comment = workflow["jobs"]["comment"]["if"]
    for repository, comments in (("example/tiny", True), ("stranger/tiny", False)):
        recording.values[f"{_EVENT}head.repo.full_name"] = repository
        assert recording.holds(comment) is comments


@pytest.mark.parametrize("file", [ACTION, FILE, ROOT / "docs" / "sharing.md"], ids=lambda file: file.name)
def test_actions_are_pinned_by_their_commits(file: Path) -> None:
    used = re.findall(r"uses: (\S+)", file.read_text(encoding="utf-8"))
    assert used
    assert [one for one in used if not re.search(r"@[0-9a-f]{40}$|^OWNER/", one)] == []


def test_no_script_holds_an_expression_that_a_title_could_fill(
    workflow: dict[str, Any], action: dict[str, Any]
) -> None:
    jobs = [*workflow["jobs"].values(), action["runs"]]
    scripts = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert not any("${{" in script for script in scripts)


def test_the_workflow_gives_the_action_inputs_that_it_has(
    workflow: dict[str, Any], action: dict[str, Any]
) -> None:
    (used,) = [step for step in workflow["jobs"]["check"]["steps"] if "/tracekit@" in step.get("uses", "")]
    assert {"collect"} <= set(used["with"]) <= set(action["inputs"])
    assert all(step["shell"] == "bash" for step in action["runs"]["steps"] if "run" in step)
    assert f"tracekit-torch[torch]=={VERSION}" in (ROOT / "docs" / "gitlab-ci.yml").read_text(
        encoding="utf-8"
    )
    assert used["uses"].endswith(f"@v{VERSION}")


@pytest.mark.slow
@pytest.mark.parametrize(("times", "code"), [(30, 0), (60, 1)])
def test_the_job_of_gitlab_fails_on_a_planted_regression_alone(
    times: int, code: int, git: Git, recording: Runner
) -> None:
    opened(git, recording, times)
    job = yaml.safe_load((ROOT / "docs" / "gitlab-ci.yml").read_text(encoding="utf-8"))["performance"]
    merged = git(
        "merge-base",
        *(recording.values[f"github.event.pull_request.{side}.sha"] for side in ("base", "head")),
    )
    variables = job["variables"] | {
        "CI_PROJECT_DIR": str(recording.folder),
        "CI_COMMIT_SHA": recording.values["github.event.pull_request.head.sha"],
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": merged,
        "INSTALL": "",
    }
    (script,) = job["script"]
    done = subprocess.run(["bash", "-c", script], env=recording.env | variables, check=False)
    assert done.returncode == code
    assert Path("check.html").is_file()
    assert ET.parse("check.xml").getroot().get("failures") == ("2" if code else "0")  # noqa: S314 (our own)
