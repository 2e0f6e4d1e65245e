"""Import from pipes, unusual names, damaged files and full disks."""

from __future__ import annotations

import errno
import gzip
import json
import os
import resource
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.environment import HANG_SECONDS
from tests.tiers import thinned
from tests.traces import COUNT, durations, kernels_text
from tracekit.cli.main import run as tracekit
from tracekit.ingest.importer import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

GOOD = kernels_text()
Capture = pytest.CaptureFixture[str]


def ranked(path: Path, rank: int, *, world_size: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**json.loads(GOOD), "distributedInfo": {"rank": rank, "world_size": world_size}})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def codes(run: Run) -> dict[str, str]:
    return {d.code: d.level for d in run.meta.diagnostics}


def left_in(store: Store) -> list[str]:
    return [path.name for path in store.path.glob("*") if path.name != ".gitignore"]


def import_in_process(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    script = "import sys; from tracekit.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", script, "import", *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=HANG_SECONDS, **options)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_rank_declared_after_the_events_overrides_the_order_of_names(
    store: Store, tmp_path: Path, suffix: str
) -> None:
    ranked(tmp_path / "n" / f"a{suffix}", 1)
    late = ranked(tmp_path / "n" / f"b{suffix}", 0)
    text = GOOD.replace("k0", "of rank 0")[:-1] + ', "distributedInfo": {"rank": 0, "world_size": 2}}'
    late.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    (run,) = import_traces(store, [tmp_path / "n"])
    frame = run.table("device_intervals", columns=[C.NAME, C.RANK])
    assert frame.loc[frame[C.NAME] == "of rank 0", C.RANK].tolist() == [0]
    assert set(frame[C.RANK]) == {0, 1}
    assert not {"rank_assumed", "missing_ranks"} & codes(run).keys()


def test_traces_that_declare_the_same_rank_are_numbered(store: Store, tmp_path: Path) -> None:
    for name in "ab":
        ranked(tmp_path / "n" / f"{name}.json.gz", 0)
    (run,) = import_traces(store, [tmp_path / "n"])
    assert codes(run)["rank_assumed"] == "warn"
    assert set(run.table("device_intervals", columns=[C.RANK])[C.RANK]) == {0, 1}


def test_missing_ranks_are_reported(store: Store, tmp_path: Path) -> None:
    (alone,) = import_traces(store, [ranked(tmp_path / "n" / "a.json", 1, world_size=3)])
    assert codes(alone)["missing_ranks"] == "info"
    ranked(tmp_path / "n" / "b.json", 2, world_size=3)
    (two,) = import_traces(store, [tmp_path / "n"])
    (said,) = [d.message for d in two.meta.diagnostics if d.code == "missing_ranks"]
    assert (codes(two)["missing_ranks"], said) == ("warn", "2 of the job's 3 ranks are here; missing: 0")


def test_a_damaged_rank_is_reported_on_stderr_and_in_the_run(
    store: Store, tmp_path: Path, capsys: Capture
) -> None:
    ranked(tmp_path / "mix" / "r0.json", 0)
    (tmp_path / "mix" / "r1.json").write_text('{"traceEve')
    assert tracekit(["import", str(tmp_path / "mix"), "--store", str(store.path)]) == 0
    assert "left out r1.json" in capsys.readouterr().err
    assert codes(store.runs()[0])["skipped_file"] == "warn"


def test_a_damaged_file_does_not_block_others(store: Store, tmp_path: Path, capsys: Capture) -> None:
    texts = {"good.json": GOOD, "eventless.json": '{"traceEvents": []}', "bad.json": "x", "more.json": GOOD}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in ("gone", *texts)]
    assert tracekit(["import", *paths, "--store", str(store.path)]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == [run.id for run in store.runs()]
    assert [line.startswith("tracekit: ") for line in err.splitlines()] == [True] * 3
    assert all(name in err for name in ("gone", "eventless.json", "bad.json"))
    assert len(store.runs()) == 2


def test_a_named_pipe_is_read_once(store: Store, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[gzip.compress(GOOD.encode())], daemon=True)
    writer.start()
    (run,) = import_traces(store, [pipe])
    writer.join()
    assert durations(run) == [5250] * COUNT
    assert run.meta.collector.options["sources"] == [{"name": "pipe"}]


def test_dev_stdin_is_standard_input(store: Store) -> None:
    done = import_in_process(["/dev/stdin", "--store", str(store.path)], input=GOOD.encode())
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"{store.runs()[0].id}\n", b"")


def test_a_name_that_is_not_utf8(store: Store, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / os.fsdecode(b"\xfe")
    folder.mkdir()
    path = folder / os.fsdecode(b"\xff.json")
    path.write_text(GOOD.replace('"dur": 5.25', '"dur": -5.25', 3))
    (folder / os.fsdecode(b"\xfd.json")).write_text('{"traceEve')
    for given in (path, folder):
        assert tracekit(["import", str(given), "--store", str(store.path)]) == 0
    assert "\ufffd.json" in capsys.readouterr().err
    assert store.runs()[0].meta.collector.options["sources"][0]["name"] == "\ufffd.json"
    assert {"bad_duration", "skipped_file"} <= codes(store.runs()[1]).keys()


def test_a_label_that_is_not_utf8(store: Store, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(GOOD)
    arguments = [str(tmp_path / "t.json"), "--label", os.fsdecode(b"\xff"), "--store", str(store.path)]
    assert tracekit(["import", *arguments]) == 0
    assert store.runs()[0].meta.label == "\ufffd"


def test_a_descriptor_is_read_once(store: Store) -> None:
    reader, writer = os.pipe()
    os.write(writer, GOOD.encode())
    os.close(writer)
    done = import_in_process([f"/dev/fd/{reader}", "--store", str(store.path)], pass_fds=[reader])
    os.close(reader)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "-pipe-" in done.stdout.decode()


def test_a_read_error_is_one_line(store: Store, capsys: Capture) -> None:
    assert tracekit(["import", "/proc/self/mem", "--store", str(store.path)]) == 2
    assert capsys.readouterr().err.startswith("tracekit: /proc/self/mem cannot be read: Input/output error")
    assert left_in(store) == []


@pytest.mark.parametrize("size", thinned([0, 1024, 8192], default=[1024]))
def test_a_file_size_limit_is_one_line_and_leaves_no_files(store: Store, tmp_path: Path, size: int) -> None:
    (tmp_path / "t.json").write_text(kernels_text(20_000))
    done = import_in_process(
        [str(tmp_path / "t.json"), "--store", str(store.path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    said = f"tracekit: the store {store.path} cannot be written: File too large; "
    assert (done.returncode, done.stdout, done.stderr.decode()[: len(said)]) == (2, b"", said)
    assert done.stderr.count(b"\n") == 1
    assert left_in(store) == []


@pytest.mark.parametrize(
    "place",
    ["tracekit.ingest.kineto.reader.part_files.write_batches", "tracekit.ingest.importer.local.write"],
)
def test_a_full_disk_is_one_line_and_leaves_no_files(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, place: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr(place, full)
    (tmp_path / "t.json").write_text(GOOD)
    assert tracekit(["import", str(tmp_path / "t.json"), "--store", str(store.path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), "cannot be written: No space left on device" in err) == ("", 1, True)
    assert left_in(store) == []


def test_an_empty_reference_is_one_line(store: Store, capsys: Capture) -> None:
    assert tracekit(["analyze", "", "--store", str(store.path)]) == 2
    assert capsys.readouterr().err == "tracekit: the run reference is empty; list runs with `tracekit runs`\n"
