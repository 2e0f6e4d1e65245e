from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built

torch = pytest.importorskip("torch")


def test_bert_gives_logits_of_words_and_sentences() -> None:
    words, sentences = built(BUILT_INS["bert"], mode="infer", batch_size=2).step()
    assert words.shape == (2, 8, 30_522)
    assert sentences.shape == (2, 2)


@pytest.mark.slow
def test_bert_trains_every_parameter() -> None:
    program = built(BUILT_INS["bert"], batch_size=2)
    program.step()
    assert [name for name, p in program.model.named_parameters() if p.grad is None] == []
