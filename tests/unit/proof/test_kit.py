"""The whole proof kit on a simulated GPU, with faults: hanging and aborting recipes, no CMake, no nsys."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import sys
import tarfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from samples import record
from samples.proof import kit, machine, processes
from samples.proof.claims import CLAIMS, Verdict
from samples.proof.judges import Outcome
from samples.proof.machine import Machine
from samples.proof.processes import Ended, State
from samples.proof.recipes import RECIPES, Need, Recipe
from tests.proof_runs import A100, RUNS, UUID
from tests.unit.proof.test_archive import SMI
from tracekit.errors import TracekitError
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

HOST, USER = "gpu-box-17.example.org", "annabel"
TOOLS = ("sh", "cp", "mkdir", "sleep", "cat", "git")
LEAVE = 'mkdir -p "$1" && cp -r "$2" "$1"/ && cp "$3" "$4"; echo "$5" >&2'
NOW = datetime(2026, 11, 21, 3, 15, tzinfo=UTC)
GPU = Machine(available=True, names=(A100,), versions={"torch": "2.13.0", "cuda": "12.8", "hip": None})
HANGS, ABORTS = "pauses", "cuda-graph"


@dataclass(frozen=True)
class Result:
    """What the kit left and said."""

    out: Path
    code: int
    report: dict[str, Any]
    said: str

    @property
    def archive(self) -> Path:
        (found,) = self.out.glob("*.tar.gz")
        return found

    def recipe(self, name: str) -> dict[str, Any]:
        (found,) = (one for one in self.report["recipes"] if one["recipe"] == name)
        return dict(found)


def stand_ins(folder: Path) -> list[Recipe]:
    """Every recipe, each replaced by one that leaves a simulated run and names the machine in its errors."""
    store = Store(folder / "store")
    named = f"{USER}@{HOST}: /home/{USER}/train.py, /scratch/{USER}/data and GPU-{UUID}"
    recipes = []
    for number, recipe in enumerate(RECIPES):
        facts, run = folder / f"{number}.json", folder / "nothing"
        if recipe.name in RUNS:
            simulated = RUNS[recipe.name]()
            scratch = folder / recipe.name
            scratch.mkdir()
            made = simulated.imported(store, recipe.name, scratch, now=NOW + timedelta(seconds=number))
            facts.write_text(json.dumps(simulated.facts))
            run = folder / "store" / made.id
        words = ("sh", "-c", LEAVE, "sh", "{store}", str(run), str(facts), "{facts}", named)
        if recipe.name == "loop":
            loop = json.dumps({"wall_ns": 20_000_000, "steps": 20})
            words = (
                "sh",
                "-c",
                'echo "$1" > "$2"',
                "sh",
                loop.replace("{", "{{").replace("}", "}}"),
                "{facts}",
            )
        if recipe.fails:
            words = ("sh", "-c", f"echo 'RuntimeError: {recipe.fails}' >&2; exit 3")
        recipes.append(
            replace(recipe, command=words, needs=tuple(set(recipe.needs) & {Need.NSYS, Need.COMPILER}))
        )
    faults = {
        HANGS: ("sh", "-c", "echo begun >&2; sleep 600"),
        ABORTS: ("sh", "-c", "echo 'terminate called' >&2; kill -ABRT $$"),
    }
    return [
        replace(one, command=faults[one.name], seconds=1) if one.name in faults else one for one in recipes
    ]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("kit")
    tools = folder / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    smi = tools / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncat <<'END'\n{SMI}END\n")
    smi.chmod(0o755)
    home = folder / "home" / USER
    home.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch, (folder / "said.txt").open("w") as said:
        for name, value in {"PATH": str(tools), "HOME": str(home), "LOGNAME": USER}.items():
            patch.setenv(name, value)
        patch.delenv("NSYS_HOME", raising=False)
        patch.delenv("CXX", raising=False)
        patch.setattr(socket, "gethostname", lambda: HOST)
        patch.setattr(sys, "stdout", said)
        code = kit.prove(folder / "out", stand_in=kit.StandIn(recipes=stand_ins(folder), machine=GPU))
    report = json.loads((folder / "out" / "report.json").read_text())
    return Result(folder / "out", code, report, (folder / "said.txt").read_text())


def contents(archive: Path) -> dict[str, str]:
    """The files of an archive by name, unpacked."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            data = file.read()
            found[member.name] = (gzip.decompress(data) if member.name.endswith(".gz") else data).decode()
    return found


def test_faults_are_rows_and_all_other_recipes_end_well(result: Result) -> None:
    states = {one["recipe"]: (one["state"], one["reason"]) for one in result.report["recipes"]}
    assert list(states) == [one.name for one in RECIPES]
    assert states.pop(HANGS) == ("timeout", "it did not end within 1 s")
    assert states.pop(ABORTS) == ("failed", "it was ended by signal 6: terminate called")
    assert states.pop("nsys") == ("not-applicable", "it needs nsys")
    assert states.pop("libtorch") == ("not-applicable", "it needs CMake and a C++ compiler")
    assert set(states.values()) == {("ok", "")}
    assert result.recipe("out-of-memory")["exit_code"] == 3
    assert result.code == 3


def test_every_claim_has_a_verdict_with_its_numbers(result: Result) -> None:
    claims = result.report["claims"]
    assert {one["claim"] for one in claims} == {one.name for one in CLAIMS}
    assert all(one["states"] and (one["numbers"] or one["reason"]) for one in claims)
    undecided = {one["claim"]: one for one in claims if one["outcome"] != "pass"}
    assert {name: one["outcome"] for name, one in undecided.items()} == {
        "steady": "not-applicable",
        "spin": "unknown",
        "pause": "unknown",
        "graph_nodes": "unknown",
        "same_kernels": "not-applicable",
    }
    assert undecided["same_kernels"]["reason"] == "nsys: it needs nsys"
    assert sum(result.report["summary"].values()) == len(claims)


def test_a_simulated_report_and_its_archive_say_so(result: Result) -> None:
    assert result.report["simulated"] is True
    assert result.archive.name.startswith("tracekit-proof-simulated-")
    assert str(result.archive) in result.said
    assert "Issues page" in result.said.splitlines()[-1]


def test_the_archive_has_the_evidence(result: Result) -> None:
    files = {name.partition("/")[2]: text for name, text in contents(result.archive).items()}
    assert json.loads(files["report.json"]) == result.report
    assert json.loads(files["machine/doctor.json"])["schema"] == "tracekit.doctor/1"
    assert "NVIDIA H100 80GB HBM3" in files["machine/nvidia-smi.txt"]
    assert "torch" in json.loads(files["machine/packages.json"])
    assert result.report["tools"]["nsys-version.txt"] == "nsys not found"
    for name in RUNS:
        if name not in (HANGS, ABORTS, "nsys", "libtorch"):
            assert json.loads(files[f"runs/{name}/run.json"])["label"] == name
            assert json.loads(files[f"runs/{name}/tables.json.gz"])["traceEvents"]
            assert files[f"recipes/{name}/stderr.txt"]


def test_nothing_in_the_archive_or_the_report_names_the_machine(result: Result) -> None:
    unredacted = (result.out / "work" / "recipes" / "bf16" / "stderr.txt").read_text()
    assert all(word in unredacted for word in (HOST, USER, UUID))
    texts = contents(result.archive)
    hidden = [HOST, HOST.partition(".")[0], USER, UUID, "1654923004567", "8f2e3d4c5b6a7980", "big-customer"]
    real = socket.gethostname()
    hidden += [str(result.out), *([real] if len(real) > 4 else [])]
    leaks = [
        (name, word)
        for name, text in {
            **texts,
            "report": json.dumps(result.report),
            **{one: one for one in texts},
        }.items()
        for word in hidden
        if word.lower() in text.lower()
    ]
    assert leaks == []


def test_exit_codes() -> None:
    def judged(outcome: Outcome) -> list[Verdict]:
        return [Verdict(claim="linked", recipes=("bf16",), outcome=outcome)]

    fine, hung = Ended(state=State.OK), Ended(state=State.TIMEOUT)
    assert kit.exit_code(judged(Outcome.PASS), [fine, Ended(state=State.NOT_APPLICABLE)]) == 0
    assert kit.exit_code(judged(Outcome.FAIL), [fine, hung]) == 1
    assert kit.exit_code(judged(Outcome.PASS), [fine, hung]) == 3
    assert kit.exit_code(judged(Outcome.UNKNOWN), [fine]) == 3


def test_a_machine_without_a_usable_gpu_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "argv", ["record.py", "--out", str(tmp_path / "out")])
    assert record.main() == 5
    said = capsys.readouterr()
    assert said.err.startswith("tracekit: torch cannot use a GPU here: ")
    assert said.out == ""
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_with_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(TracekitError, match="not an empty folder"):
        kit.prove(tmp_path)
    assert os.listdir(tmp_path) == ["kept.txt"]  # noqa: PTH208


def test_recipes_that_are_left_when_the_time_is_over_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "describe", lambda *_, **__: {})
    recipe = Recipe(name="loop", about="nothing", command=("sleep", "600"))
    stand_in = kit.StandIn(recipes=[recipe], machine=GPU)
    assert kit.prove(tmp_path / "out", minutes=0, stand_in=stand_in) == 3
    (row,) = json.loads((tmp_path / "out" / "report.json").read_text())["recipes"]
    assert (row["state"], row["exit_code"]) == ("not-run", None)


def test_a_program_that_has_nothing_to_show_says_why(tmp_path: Path) -> None:
    words = ("sh", "-c", f"echo 'the memory is shared' >&2; exit {processes.NOT_APPLICABLE_CODE}")
    recipe = Recipe(name="out-of-memory", about="", command=words, fails="out of memory")
    ended = processes.run(recipe, tmp_path / "x", store=tmp_path, last="0", seconds=60)
    assert (ended.state, ended.reason) == (State.NOT_APPLICABLE, "the memory is shared")


@pytest.mark.parametrize(
    ("visible", "last"), [("", "1"), ("3,5", "5"), ("3, MIG-x ", "MIG-x"), ("4,2,7", "2"), ("6", "1")]
)
def test_the_last_gpu_is_one_of_the_visible_ones(
    visible: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.last_device(replace(GPU, names=(A100, A100))) == last


@pytest.mark.parametrize(
    "words", [["--minutes", "3"], ["--out", "x", "--device", "cpu"], ["--out", "x", "no"]]
)
def test_options_that_do_not_fit_are_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["record.py", *words])
    with pytest.raises(SystemExit) as ended:
        record.main()
    assert ended.value.code == 2
