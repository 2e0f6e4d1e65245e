"""The workloads on text: shapes, what is predicted, and the scalar that one of two Reformers copies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.workloads.building import BUILT_INS, built, losses
from tracekit.errors import UnusableInputError

torch = pytest.importorskip("torch")


def copies(name: str) -> int:
    """Copies from the host in one pass of a model that lies on a device without memory."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Copies(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += func is torch.ops.aten._to_copy.default and args[0].device.type == "cpu"
            return func(*args, **(kwargs or {}))

    model = built(BUILT_INS[name], mode="infer").model.to("meta")
    tokens = torch.zeros(1, 128, dtype=torch.int64, device="meta")
    with torch.no_grad(), Copies() as counted:
        model(tokens)
    return counted.count


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


def test_gpt_shares_its_head_with_its_embedding() -> None:
    program = built(BUILT_INS["gpt"])
    program.step()
    named = dict(program.model.named_parameters())
    assert not [name for name in named if "head" in name]
    # the head alone reaches the rows of tokens that were not read
    assert (named["wte.weight"].grad.abs().sum(dim=1) > 0).all()


def test_bert_gives_logits_of_words_and_sentences() -> None:
    words, sentences = built(BUILT_INS["bert"], mode="infer", batch_size=2).step()
    assert words.shape == (2, 8, 30_522)
    assert sentences.shape == (2, 2)


def test_bert_trains_every_parameter() -> None:
    program = built(BUILT_INS["bert"], batch_size=2)
    program.step()
    assert [name for name, p in program.model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("tokens", [1, 8, 100])
def test_masked_tokens_are_the_ones_predicted(tokens: int) -> None:
    from tracekit.workloads.text import IGNORED, masked

    inputs, labels = masked(3, tokens, 1000, mask=1000)
    hidden = inputs == 1000
    assert hidden.sum(dim=1).tolist() == [max(1, round(0.15 * tokens))] * 3
    assert torch.equal(hidden, labels != IGNORED)


def test_next_tokens_are_the_ones_predicted() -> None:
    from tracekit.workloads.text import following

    inputs, labels = following(3, 8, 1000)
    assert torch.equal(inputs[:, 1:], labels[:, :-1])


def test_reformer_gives_logits_of_its_vocabulary() -> None:
    assert built(BUILT_INS["reformer"], mode="infer", batch_size=2).step().shape == (2, 128, 320)


def test_the_fixed_reformer_computes_the_same() -> None:
    first, second = (losses(BUILT_INS[name], 3) for name in ("reformer", "reformer_fixed"))
    assert first == pytest.approx(second, rel=1e-5)


def test_only_one_reformer_copies_a_scalar_in_each_attention() -> None:
    assert {name: copies(name) for name in ("reformer", "reformer_fixed")} == {
        "reformer": 6,
        "reformer_fixed": 0,
    }


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
