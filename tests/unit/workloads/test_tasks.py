from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("tokens", [1, 8, 100])
def test_masked_tokens_are_the_labels(tokens: int) -> None:
    from tracekit.workloads.tasks import IGNORED, mask_tokens

    inputs, labels = mask_tokens(3, tokens, 1000, mask=1000)
    hidden = inputs == 1000
    assert hidden.sum(dim=1).tolist() == [max(1, round(0.15 * tokens))] * 3
    assert torch.equal(hidden, labels != IGNORED)


def test_next_tokens_are_the_labels() -> None:
    from tracekit.workloads.tasks import next_tokens

    inputs, labels = next_tokens(3, 8, 1000)
    assert torch.equal(inputs[:, 1:], labels[:, :-1])
