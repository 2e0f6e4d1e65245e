from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built

torch = pytest.importorskip("torch")


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(("frames", "left"), [(7, 1), (64, 15), (400, 99)])
def test_speech_transformer_gives_logits_of_downsampled_frames(frames: int, left: int) -> None:
    made = built(BUILT_INS["speech_transformer"], mode="infer", batch_size=2, resolution=frames).step()
    assert made.shape == (2, left, 5000)


def test_speech_transformer_distinguishes_positions() -> None:
    model = built(BUILT_INS["speech_transformer"], mode="infer").model
    with torch.no_grad():
        made = model(torch.ones(1, 64, 80))
    assert not torch.allclose(made[:, 0], made[:, -1])
