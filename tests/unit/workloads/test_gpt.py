from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built

torch = pytest.importorskip("torch")


@pytest.mark.slow
def test_gpt_gives_logits_of_its_vocabulary() -> None:
    assert built(BUILT_INS["gpt"], mode="infer", batch_size=2).step().shape == (2, 8, 50_257)


def test_gpt_sees_no_later_token() -> None:
    model = built(BUILT_INS["gpt"], mode="infer").model
    tokens = torch.arange(8).unsqueeze(0)
    changed = torch.cat([tokens[:, :5], tokens[:, 5:] + 100], dim=1)
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@pytest.mark.slow
def test_gpt_shares_its_head_with_its_embedding() -> None:
    program = built(BUILT_INS["gpt"])
    program.step()
    named = dict(program.model.named_parameters())
    assert not [name for name in named if "head" in name]
    # the head alone reaches the rows of tokens that were not read
    assert (named["wte.weight"].grad.abs().sum(dim=1) > 0).all()
