"""Peaks that a user gives: by name or from a file, with errors that say what is wrong."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import kernel, make_run
from tracekit.errors import UnusableInputError
from tracekit.runs.devices import Device, entries, names, parse_device

if TYPE_CHECKING:
    from pathlib import Path

MINE = {"name": "My GPU", "gb_per_s": 1000, "tflops": {"fp32": 100, "tf32": 200, "fp16": None}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(MINE))
    return path


def test_a_listed_name_gives_its_own_entry() -> None:
    for entry in entries():
        found = parse_device(entry["name"])
        assert (found.name, found.tflops) == (entry["name"], entry["tflops"])
        assert parse_device(entry["name"].upper()) == found
    assert len(set(names())) == len(names())


def test_a_file_gives_its_peaks_and_is_their_source(file: Path) -> None:
    found = parse_device(str(file))
    assert found == Device("My GPU", 1000, {"fp32": 100, "tf32": 200}, "mine.json")
    assert (found.peak("tf32"), found.peak("fp16"), found.peak("fp8")) == (200, None, None)


def test_an_entry_of_the_list_is_a_file_too(tmp_path: Path) -> None:
    for entry in entries():
        (tmp_path / "one.json").write_text(json.dumps(entry))
        assert parse_device(str(tmp_path / "one.json")) == parse_device(entry["name"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[1", "is not JSON"),
        ("[]", "it is not one object"),
        (json.dumps(MINE | {"tops": 3}), "unknown key 'tops'"),
        (json.dumps(MINE | {"name": ""}), "name is not a text"),
        (json.dumps({"name": "My GPU", "gb_per_s": 1}), "tflops is not an object"),
        (json.dumps(MINE | {"tflops": {"fp12": 1}}), "unknown precision 'fp12'"),
        (json.dumps(MINE | {"gb_per_s": -1}), "gb_per_s is not a number above 0"),
        (json.dumps(MINE | {"tflops": {"fp16": "fast"}}), "tflops.fp16 is not a number above 0"),
        (json.dumps(MINE | {"tflops": {"fp16": True}}), "tflops.fp16 is not a number above 0"),
        (json.dumps(MINE | {"tflops": {"fp16": float("inf")}}), "tflops.fp16 is not a number above 0"),
        (json.dumps({"name": "My GPU", "tflops": {}}), "it has no peak"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_reason(content: str, why: str, file: Path) -> None:
    file.write_text(content)
    with pytest.raises(UnusableInputError, match=r"mine\.json") as error:
        parse_device(str(file))
    assert why in error.value.message
    assert '"gb_per_s": 2000' in error.value.hint


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("H1OO", "did you mean H100 SXM, H100 PCIe or H100 NVL?"),
        ("rtx3080", "did you mean GeForce RTX 3080 10 GB, GeForce RTX 3080 12 GB or "),
        ("NVIDIA GeForce RTX 3080", "GeForce RTX 3080 10 GB or GeForce RTX 3080 12 GB"),
        ("MI355", "did you mean MI355X"),
        ("Voodoo", "listed: V100 SXM2, "),
        ("missing.json", "give the name of a listed device or a JSON file"),
    ],
)
def test_an_unknown_name_gets_suggestions(name: str, suggested: str) -> None:
    with pytest.raises(UnusableInputError) as error:
        parse_device(name)
    assert suggested in error.value.hint


def test_views_of_ranks_keep_the_given_peaks(tmp_path: Path) -> None:
    run = make_run(tmp_path, device_intervals=[kernel(0, 1, rank=rank) for rank in (0, 1)])
    other = run.with_peaks(parse_device("L4"))
    assert (run.peaks, other.of_ranks(1).peaks, other.meta) == (None, parse_device("L4"), run.meta)
    assert other.with_peaks(None) == run


def test_copies_of_views_keep_the_given_peaks(tmp_path: Path) -> None:
    run = make_run(tmp_path, device_intervals=[kernel(0, 1, rank=rank) for rank in (0, 1)])
    view = run.of_ranks(1).with_peaks(parse_device("L4"))
    copied: Any = pickle.loads(pickle.dumps(view))  # noqa: S301 (just written)
    assert (copied.peaks, copied.ranks) == (parse_device("L4"), (1,))
