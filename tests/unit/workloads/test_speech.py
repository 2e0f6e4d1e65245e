"""The workloads on speech: shapes, and what their inference reads."""

from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("frames", "left"), [(7, 1), (64, 15), (400, 99)])
def test_speech_transformer_gives_logits_of_shortened_frames(frames: int, left: int) -> None:
    made = built(BUILT_INS["speech_transformer"], mode="infer", batch_size=2, resolution=frames).step()
    assert made.shape == (2, left, 5000)


def test_speech_transformer_tells_places_apart() -> None:
    model = built(BUILT_INS["speech_transformer"], mode="infer").model
    with torch.no_grad():
        made = model(torch.ones(1, 64, 80))
    assert not torch.allclose(made[:, 0], made[:, -1])


def test_tts_makes_frames_and_says_where_it_stops() -> None:
    coarse, refined, gates = built(BUILT_INS["tts"], mode="infer", batch_size=2, resolution=5).step()
    assert coarse.shape == refined.shape == (2, 5, 80)
    assert gates.shape == (2, 5)


def test_tts_reads_true_frames_only_when_it_trains() -> None:
    shapes = {
        mode: built(BUILT_INS["tts"], mode=mode).batches.next()[0][1].shape for mode in ("train", "infer")
    }
    assert shapes == {"train": (1, 4, 80), "infer": (1, 4, 0)}


def test_tts_reads_the_text_with_weights_that_sum_to_one() -> None:
    from tracekit.workloads.tts_model import Attention

    torch.manual_seed(0)
    weights = Attention()(torch.randn(2, 1024), torch.randn(2, 6, 128), torch.zeros(2, 2, 6))
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))
