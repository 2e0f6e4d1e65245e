"""The scripts for Slurm, the container file and the jobs for Kubernetes run as far as this machine can."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from samples.simulator import trace
from samples.simulator.planted import parallelism
from tests.integration.test_installs import SOURCES, UNREACHABLE, copy_sources
from tests.integration.test_remote_traces import sent
from tracekit.cli.main import cli
from tracekit.registry import VERSION
from tracekit.runs.store import Store, locate

if TYPE_CHECKING:
    from tests.object_storage import Server

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCRIPTS = sorted(DOCS.glob("*.sbatch"))
CONTAINER = (DOCS / "Containerfile").read_text()
MANIFESTS: list[dict[str, Any]] = [*yaml.safe_load_all((DOCS / "kubernetes.yml").read_text())]
PROGRAM = """
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    loss = model(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
"""
SRUN = """
while [[ $1 == --* ]]; do shift; done
tasks=()
for node in 0 1; do SLURM_NODEID=$node SLURM_PROCID=$node "$@" & tasks+=($!); done
for task in "${tasks[@]}"; do wait "$task"; done
"""
"""Runs a command on two nodes that are one."""
TOOLS = {
    "srun": SRUN,
    "scontrol": 'test "$1 $2" = "show hostnames" && printf "127.0.0.1\\nother\\n"',
    "tracekit": f'exec "{sys.executable}" -c "from tracekit.cli.main import main; main()" "$@"',
}


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a batch job of two nodes."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in TOOLS.items():
        (tools / name).write_text(f"#!/bin/bash\n{script}\n")
        (tools / name).chmod(0o755)
    search = [str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {
        "PATH": os.pathsep.join(search),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path),
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NAME": "profile",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NNODES": "2",
        "PORT": "0",
    }


def submit(script: str, *arguments: str, env: dict[str, str], folder: Path) -> None:
    done = subprocess.run(
        ["bash", str(DOCS / script), *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_ask_slurm_in_its_comments_alone(script: Path) -> None:
    """Slurm reads them up to the first command."""
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    asked = [line.removeprefix("#SBATCH ") for line in lines[:first] if line.startswith("#SBATCH ")]
    assert all(re.fullmatch(r"--[a-z-]+=\S+", words) for words in asked)
    assert {words.partition("=")[0] for words in asked} >= {"--nodes", "--ntasks-per-node", "--time"}
    assert not any(line.startswith("#SBATCH") for line in lines[first:])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_have_no_mistake_that_shellcheck_knows(script: Path) -> None:
    if not (program := shutil.which("shellcheck")):
        pytest.skip("needs shellcheck: apt-get install shellcheck")
    done = subprocess.run([program, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_two_nodes_become_one_run(slurm: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    slurm["PORT"] = str(_free_port())
    submit("slurm-record.sbatch", "train.py", env=slurm, folder=tmp_path)
    assert [len(run.ranks) for run in Store(tmp_path / "runs-17").runs()] == [1, 1]
    (run,) = Store(tmp_path / "runs").runs()
    assert run.meta.label == "profile-17"
    assert [*run.ranks] == [0, 1]
    assert set(run.table("steps")["step"]) == {5, 6, 7, 8, 9}


def _free_port() -> int:
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("remote", [False, True], ids=["folder", "s3"])
def test_traces_are_imported_by_a_cluster_of_the_job(
    *, remote: bool, slurm: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("distributed")
    traces, store = tmp_path / "traces", str(tmp_path / "runs")
    traces.mkdir()
    for number, program in enumerate(parallelism.tensor_parallel(ranks=2)):
        (traces / f"rank{number}.json").write_bytes(trace(program))
    found = f"{traces}/*.json"
    if remote:
        server: Server = request.getfixturevalue("s3")
        slurm |= server.variables()
        found, store = "s3://bucket/traces/*.json", "s3://bucket/runs"
        sent(traces, "s3://bucket/traces")
    submit("slurm-import.sbatch", found, "mine", env=slurm | {"TRACEKIT_STORE": store}, folder=tmp_path)
    (run,) = Store(locate(store)).runs()
    assert (run.meta.label, [*run.ranks]) == ("mine", [0, 1])
    assert not [*tmp_path.glob("dask-17.json")]


def instructions(kind: str) -> list[str]:
    return re.findall(rf"^{kind} (.*)$", CONTAINER, re.MULTILINE)


def test_the_container_is_slim_pinned_and_no_root() -> None:
    assert instructions("FROM") == ["python:3.12-slim AS build", "python:3.12-slim"]
    assert CONTAINER.index("\nUSER 10001\n") > CONTAINER.rindex("\nRUN ")
    assert f"-t tracekit:{VERSION} .\n" in CONTAINER
    entry = json.loads(instructions("ENTRYPOINT")[0])
    assert entry == ["tracekit"]
    copied = [words.split()[:-1] for words in instructions("COPY") if not words.startswith("--")]
    assert {name for names in copied for name in names} == set(SOURCES)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_steps_of_the_container_install_a_program_for_an_ordinary_user(tmp_path: Path) -> None:
    """Its first steps run in a fresh environment; its user runs the program."""
    source = tmp_path / "source"
    copy_sources(source)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    variables = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    variables |= {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))
    }
    for step in instructions("RUN")[:2]:
        script = ["sh", "-c", step.replace("/dist", str(tmp_path / "dist"))]
        done = subprocess.run(script, env=variables, cwd=source, capture_output=True, text=True)
        if any(text in done.stderr for text in (*UNREACHABLE, "Could not find a version")):
            pytest.skip("the package registry cannot be reached")
        assert done.returncode == 0, done.stderr
    assert not [*environment.glob("lib/python*/site-packages/torch")]
    command = [environment / "bin" / json.loads(instructions("ENTRYPOINT")[0])[0], "import", "trace.json.gz"]
    runs = tmp_path / "runs"
    runs.mkdir()
    shutil.copyfile(ROOT / "samples/simulated/training.json.gz", runs / "trace.json.gz")
    user: dict[str, Any] = {}
    is_readable = all(folder.stat().st_mode & 1 for folder in Path(sys.base_prefix).resolve().parents)
    if os.getuid() == 0 and is_readable:  # else others cannot start this Python
        identity = int(instructions("USER")[0])
        os.chown(runs, identity, identity)
        for folder in [tmp_path, *tmp_path.parents]:
            if not folder.stat().st_mode & 1:
                folder.chmod(folder.stat().st_mode | 0o711)  # of pytest's temporary folders
        user = {"user": identity, "group": identity, "extra_groups": []}
    done = subprocess.run(
        command,
        env={"TRACEKIT_STORE": str(runs), "XDG_CACHE_HOME": str(runs)},
        cwd=runs,
        text=True,
        capture_output=True,
        **user,
    )
    assert done.returncode == 0, done.stderr
    assert (runs / done.stdout.strip() / "run.json").is_file()


def test_manifests_satisfy_the_schema_of_kubernetes() -> None:
    schema: Any = pytest.importorskip("kubernetes_validate")
    version = schema.latest_version()
    for manifest in MANIFESTS:
        schema.validate(manifest, version, strict=True)
    (job,) = [
        copy.deepcopy(one)
        for one in MANIFESTS
        if one["metadata"]["name"] == "profile" and one["kind"] == "Job"
    ]
    job["spec"]["template"]["spec"]["containers"][0]["argz"] = []
    with pytest.raises(schema.ValidationError):
        schema.validate(job, version, strict=True)


def commands_of(manifest: dict[str, Any]) -> list[list[str]]:
    containers = manifest.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    return [[*one.get("command", ["tracekit"]), *one["args"]] for one in containers]


def test_jobs_run_commands_that_exist() -> None:
    asked = [words for manifest in MANIFESTS for words in commands_of(manifest)]
    assert [words[:2] for words in asked] == [["tracekit", "collect"], ["tracekit", "import"]]
    for _, name, *words in asked:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        command.make_context(name, words)
    (recorded, joined) = (shlex.join(words) for words in asked)
    stored = re.search(r"--store (\S+)", recorded)
    assert stored
    assert f"{stored[1]}/*/trace*.json.gz" in joined


def test_containers_are_no_root_and_get_no_token_of_the_cluster() -> None:
    jobs = [manifest for manifest in MANIFESTS if manifest["kind"] == "Job"]
    assert len(jobs) == 2
    for job in jobs:
        pod = job["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert not container["image"].endswith((":latest", "tracekit"))
    (service,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "Service"]
    recorded = jobs[0]["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": recorded}
    assert jobs[0]["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
