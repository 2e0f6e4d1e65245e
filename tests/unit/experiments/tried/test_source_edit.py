"""Diffs that make changes at the lines where they took effect, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.experiments.source_edit import diff_sources
from tracekit.recording.changes import available

KNOWN = available()


def lines(tmp_path: Path, source: str, places: dict[str, int]) -> list[str]:
    """Lines that the diff of changes at lines of a program removes and adds."""
    file = tmp_path / "train.py"
    file.write_text(source, encoding="utf-8", newline="")
    at = {name: f"{file}:{line}" for name, line in places.items()}
    diff = diff_sources([KNOWN[name] for name in places], at, list(places), tmp_path)
    assert file.read_text(encoding="utf-8") == source.replace("\r\n", "\n")
    return [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}]


@pytest.mark.parametrize(
    ("name", "line", "changed"),
    [
        ("num_workers", "data = DataLoader(dataset)", "data = DataLoader(dataset, num_workers=4)"),
        ("num_workers", "data = DataLoader(d, num_workers=0,)", "data = DataLoader(d, num_workers=4,)"),
        ("num_workers", "a = DataLoader(d, 1, 1, None, None, 0)", "a = DataLoader(d, 1, 1, None, None, 4)"),
        ("pin_memory", "for x in f(DataLoader((d))): 1", "for x in f(DataLoader((d), pin_memory=True)): 1"),
        ("zero_grad_to_none", "optimizer.zero_grad(False)", "optimizer.zero_grad(True)"),
        ("zero_grad_to_none", "o.zero_grad(set_to_none=False)", "o.zero_grad(set_to_none=True)"),
        ("foreach", "o = optim.AdamW(m.parameters())", "o = optim.AdamW(m.parameters(), foreach=True)"),
        ("no_anomaly_detection", "é = set_detect_anomaly(True)", "é = set_detect_anomaly(False)"),
    ],
)  # fmt: skip
def test_an_argument_of_the_call_is_set(name: str, line: str, changed: str, tmp_path: Path) -> None:
    assert lines(tmp_path, f"import torch\n{line}\n", {name: 2}) == [f"-{line}", f"+{changed}"]


@pytest.mark.parametrize("line", ["data = DataLoader(d, **options)", "data = make(d)", "x = ("])
def test_calls_that_cannot_be_edited_are_left_alone(line: str, tmp_path: Path) -> None:
    assert lines(tmp_path, f"import torch\n{line}\n", {"num_workers": 2}) == []


def test_arguments_on_lines_of_their_own(tmp_path: Path) -> None:
    source = "import torch\r\ndata = DataLoader(\r\n    dataset,\r\n    batch_size=4,\r\n)\r\n"
    assert lines(tmp_path, source, {"num_workers": 2}) == [
        "-    batch_size=4,",
        "+    batch_size=4, num_workers=4,",
    ]


def test_statements_follow_the_imports(tmp_path: Path) -> None:
    source = '"""A program."""\nimport torch as t\nfrom x import (\n    y,\n)\nmain()\n'
    places = {"less_garbage_collection": 6, "flush_denormals": 6}
    added = lines(tmp_path, source, places)
    assert sorted(line for line in added if line != "+") == [
        "+gc.set_threshold(100_000, 20, 20)",
        "+import gc",
        "+import torch",
        "+torch.set_flush_denormal(True)",
    ]


def test_several_changes_make_one_diff(tmp_path: Path) -> None:
    source = "import torch\ndata = DataLoader(d)\no = SGD(p)\n"
    assert lines(tmp_path, source, {"foreach": 3, "num_workers": 2}) == [
        "-data = DataLoader(d)",
        "-o = SGD(p)",
        "+data = DataLoader(d, num_workers=4)",
        "+o = SGD(p, foreach=True)",
    ]


def test_files_of_others_and_unknown_lines_are_left_alone(tmp_path: Path) -> None:
    library = tmp_path / "library.py"
    library.write_text("import torch\nSGD(p)\n")
    (tmp_path / "program").mkdir()
    change = [KNOWN["foreach"]]
    places = {"foreach": f"{library}:2"}
    assert diff_sources(change, places, ["foreach"], tmp_path / "program") == ""
    assert diff_sources(change, {"foreach": "<string>:1"}, ["foreach"], tmp_path) == ""
    assert diff_sources([KNOWN["bfloat16"]], {"bfloat16": f"{library}:2"}, ["bfloat16"], tmp_path) == ""
    assert diff_sources(change, places, ["foreach"], tmp_path).startswith(
        "--- a/library.py\n+++ b/library.py\n"
    )
