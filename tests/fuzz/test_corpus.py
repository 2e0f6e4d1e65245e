"""Inputs that once found a defect find none any more, and a short seeded pass finds none either."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.case import Case, unpacked
from fuzz.readers import READERS, reader
from tests.tiers import UNTIMED, examples

CORPUS = sorted(Path(__file__).with_name("corpus").glob("*.zip"))
SEEDED = 40


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_once_found_a_defect_finds_none(path: Path, tmp_path: Path) -> None:
    reader(path.name.partition("-")[0]).read(unpacked(path.read_bytes()), tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_seeded_pass_finds_no_defect_and_reads_some(name: str, tmp_path: Path) -> None:
    by, accepted = reader(name), 0
    for number in range(SEEDED):
        folder = tmp_path / str(number)
        folder.mkdir()
        accepted += by.read(by.make(Random(f"{name}:0:{number}")), folder)
    assert 0 < accepted < SEEDED  # all refused, or nothing damaged, would show nothing


@pytest.mark.parametrize("name", READERS)
@settings(
    derandomize=True,
    max_examples=examples(15),
    suppress_health_check=[*UNTIMED, HealthCheck.function_scoped_fixture],
)
@given(random=st.randoms(use_true_random=False))
def test_whatever_hypothesis_makes_finds_no_defect(
    name: str, random: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reader(name).read(reader(name).make(random), tmp_path_factory.mktemp(name))


@pytest.mark.parametrize("name", READERS)
def test_an_input_follows_from_its_number_and_survives_being_kept(name: str) -> None:
    made = [reader(name).make(Random(f"{name}:1:7")) for _ in range(2)]
    assert made[0] == made[1]
    assert unpacked(made[0].packed()) == made[0]
    assert isinstance(made[0], Case)
