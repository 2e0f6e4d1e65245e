"""Inputs of past defects, and seeded inputs, find no defect."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.case import Case, unpack
from fuzz.readers import READERS, reader
from tests.tiers import UNTIMED, examples

CORPUS = sorted(Path(__file__).with_name("corpus").glob("*.zip"))
SEEDED = 40


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_inputs_of_past_defects_pass(path: Path, tmp_path: Path) -> None:
    reader(path.name.partition("-")[0]).read(unpack(path.read_bytes()), tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_seeded_pass_finds_no_defect_and_reads_some(name: str, tmp_path: Path) -> None:
    target, accepted = reader(name), 0
    for number in range(SEEDED):
        folder = tmp_path / str(number)
        folder.mkdir()
        accepted += target.read(target.make(Random(f"{name}:0:{number}")), folder)
    assert 0 < accepted < SEEDED  # otherwise the inputs are too damaged, or not at all


@pytest.mark.parametrize("name", READERS)
@settings(
    derandomize=True,
    max_examples=examples(15),
    suppress_health_check=[*UNTIMED, HealthCheck.function_scoped_fixture],
)
@given(random=st.randoms(use_true_random=False))
def test_hypothesis_finds_no_defect(
    name: str, random: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reader(name).read(reader(name).make(random), tmp_path_factory.mktemp(name))


@pytest.mark.parametrize("name", READERS)
def test_inputs_are_reproducible_and_can_be_packed(name: str) -> None:
    made = [reader(name).make(Random(f"{name}:1:7")) for _ in range(2)]
    assert made[0] == made[1]
    assert unpack(made[0].pack()) == made[0]
    assert isinstance(made[0], Case)
