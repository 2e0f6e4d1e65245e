from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built

torch = pytest.importorskip("torch")


def test_tts_gives_frames_and_stop_logits() -> None:
    coarse, refined, gates = built(BUILT_INS["tts"], mode="infer", batch_size=2, resolution=5).step()
    assert coarse.shape == refined.shape == (2, 5, 80)
    assert gates.shape == (2, 5)


def test_tts_copies_target_frames_only_in_training() -> None:
    shapes = {
        mode: built(BUILT_INS["tts"], mode=mode).batches.next()[0][1].shape for mode in ("train", "infer")
    }
    assert shapes == {"train": (1, 4, 80), "infer": (1, 4, 0)}


def test_tts_attention_weights_sum_to_one() -> None:
    from tracekit.workloads.tts import Attention

    torch.manual_seed(0)
    weights = Attention()(torch.randn(2, 1024), torch.randn(2, 6, 128), torch.zeros(2, 2, 6))
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))
