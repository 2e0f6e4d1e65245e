"""Secrets planted wherever a trace or a program can have them are in no byte of the run."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from samples.simulator import nsys
from samples.simulator.examples import training
from tests.integration.programs import collected
from tests.traces import kernel_event
from tests.unit.runs.gitleaks import BY_NAME, RULES, UNKNOWN, example
from tracekit.ingest.importer import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Git
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

WORD = "correct-horse-" + "battery"
HUB = "hf_" + "QwErTyUiOp" * 3
CLOUD = "AKIA" + "QWERTYUIOPASDFGH"
PLANTED = (WORD, HUB, CLOUD, "annabella", "gpu-box-17")
"""Secrets, a person's name and a machine's."""

TRAIN = """
import os, sys, torch
from torch.profiler import record_function
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    with record_function(f"download from https://ann:{os.environ['HUB_PASSWORD']}@example.org"):
        model(torch.randn(2, 8)).sum().backward()
    with record_function("with " + os.environ["HF_TOKEN"]):
        optimizer.step()
        optimizer.zero_grad()
"""


def planted_in(run: Run) -> list[str]:
    """Where in the files of a run something planted stands: as bytes, unpacked, or as a value."""
    found = []
    for file in sorted(path for path in run.path.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if file.suffix == ".gz":
            content += gzip.decompress(content)
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            columns = [one for one in table.columns if pa.types.is_dictionary(one.type)]
            content += "\n".join(str(value) for one in columns for value in one.unique().to_pylist()).encode()
        names = f"{file}".encode()
        found += [f"{word} in {file.name}" for word in PLANTED if word.encode() in content + names]
    return found


@pytest.fixture
def recorded(store: Store, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The run of a program with secrets in its repository, variables, arguments, ranges and label."""
    pytest.importorskip("torch")
    home = tmp_path / "people" / "annabella"
    home.mkdir(parents=True)
    git("remote", "add", "origin", f"https://ann:{WORD}@example.org/x.git")
    git("checkout", "--quiet", "-b", f"try-{HUB}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HUB_PASSWORD", WORD)
    monkeypatch.setenv("HF_TOKEN", HUB)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CLOUD)
    script = home / "train.py"
    script.write_text(TRAIN)
    words = ["--token", WORD, f"--api-key={HUB}", f"AWS_SECRET={WORD}", f"s3://{CLOUD}:{WORD}@bucket/x"]
    ended = collected(
        store.path,
        [sys.executable, str(script), *words, "--header", f"Authorization: Bearer {WORD}"],
        home,
        *("--stacks", "--keep-trace", "--label", f"with {HUB}"),
    )
    assert ended.code == 0, ended.err
    (run,) = store.runs()
    return run


def test_a_program_and_its_trace(recorded: Run) -> None:
    run = recorded
    names = set(run.arrow("host_intervals", columns=[C.NAME])[C.NAME].to_pylist())
    assert "with ***" in names  # it was there to be found
    assert "download from https://***@example.org" in names
    assert any("train.py(" in str(name) for name in names)
    assert run.meta.command[1] == "~/train.py"
    assert "window_cut_short" in {note.code for note in run.meta.diagnostics}  # it ended in its window
    assert run.rows("steps") == 3
    assert planted_in(run) == []
    with gzip.open(run.path / "trace.json.gz") as kept:
        assert json.load(kept)["traceEvents"]


@pytest.mark.slow
def test_no_public_rule_finds_a_secret_of_a_command(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        TRAIN.replace("os.environ", "dict.fromkeys(('HUB_PASSWORD', 'HF_TOKEN'), '')")
    )
    by_form = [example(rule) for rule in RULES if rule not in UNKNOWN and BY_NAME not in RULES[rule]]
    by_name = [rule.split("-")[0] for rule in RULES if BY_NAME in RULES[rule]]
    value = "0a1b2c3d4e5f6071" * 4
    named = [
        word for name in by_name for word in (f"{name.upper()}_API_KEY={value}", f"--{name}-token", value)
    ]
    command = [sys.executable, "train.py", *by_form, *named]
    found = {rule for rule, pattern in RULES.items() if re.search(pattern, "\n".join(command))}
    assert len(found) > 110  # they are there to be found
    assert collected(store.path, command, tmp_path).code == 0
    (run,) = store.runs()
    assert len(run.meta.command) == len(command)
    text = "\n".join([(run.path / "run.json").read_text(), *run.meta.command])
    assert {rule for rule in found if re.search(RULES[rule], text)} <= {*UNKNOWN, "generic-api-key"}
    assert value not in text


def test_a_trace_of_another_machine(store: Store, tmp_path: Path) -> None:
    name = "gpu-box-17.lan_4711.1763694900000000000.pt.trace.json"
    events = [
        kernel_event(1, name=f"kernel<{HUB}>"),
        {
            **kernel_event(2),
            "name": f"/home/annabella/x.py(3): PASSWORD={WORD}",
            "cat": "user_annotation",
        },
        {**kernel_event(3), "cat": "cpu_op", "args": {"Call stack": f"/Users/annabella/x.py(1): f;{CLOUD}"}},
    ]
    trace = {
        "host_name": "gpu-box-17",
        "traceName": f"/home/annabella/{name}",
        "user": "annabella",
        "environment": {"HF_TOKEN": HUB},
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1, "master": "gpu-box-17"},
        "traceEvents": events,
    }
    path = tmp_path / "people" / name
    path.parent.mkdir()
    path.write_text(json.dumps(trace))
    (run,) = import_traces(store, [path], label=f"https://ann:{WORD}@example.org")
    assert run.rows("device_intervals")
    assert planted_in(run) == []


def test_an_export_of_another_machine(store: Store, tmp_path: Path) -> None:
    path = nsys.write(training(), tmp_path / "made.sqlite")
    with closing(sqlite3.connect(path)) as file:
        for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE"):
            file.execute(f"CREATE TABLE {table} (name TEXT, value TEXT)")
            rows = [("Hostname", "gpu-box-17"), ("NvDriverVersion", "550.1"), ("HF_TOKEN", HUB)]
            file.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)  # noqa: S608 (ours)
        file.execute(
            "CREATE TABLE DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text, globalPid)"
        )
        text = f"Cannot read C:\\Users\\annabella\\x and /home/annabella/x with TOKEN={WORD}"
        file.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 3, 3, ?, NULL)", (text,))
        file.execute(
            "UPDATE StringIds SET value = value || ? WHERE id IN (SELECT id FROM StringIds LIMIT 3)",
            (f" {HUB} https://ann:{WORD}@example.org",),
        )
        file.commit()
    (run,) = import_traces(store, [path])
    assert run.meta.environment["driver"] == "550.1"
    assert any("TOKEN=***" in one.message for one in run.meta.diagnostics)
    assert planted_in(run) == []
