from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built
from tracekit.errors import UnusableInputError

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "resolution", "said"),
    [
        ("gpt", 1025, "use --resolution 1024 or less"),
        ("bert", 513, "use --resolution 512 or less"),
        ("reformer", 4160, "use --resolution 4096 or less"),
        ("reformer", 64, "use --resolution 128 or more"),
        ("reformer_fixed", 200, "reformer_fixed reads chunks of 64 tokens"),
        ("reformer_fixed", 200, "use --resolution 256"),
    ],
)
def test_lengths_without_positions_are_refused_with_the_next_step(
    name: str, resolution: int, said: str
) -> None:
    with pytest.raises(UnusableInputError) as refused:
        built(BUILT_INS[name], resolution=resolution)
    assert said in str(refused.value)
