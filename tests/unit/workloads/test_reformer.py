from __future__ import annotations

from typing import Any

import pytest

from tests.unit.workloads.building import BUILT_INS, built, losses

torch = pytest.importorskip("torch")


def copies(name: str) -> int:
    """Count copies from the host in one forward pass of a model on the meta device."""
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


def test_reformer_gives_logits_of_its_vocabulary() -> None:
    assert built(BUILT_INS["reformer"], mode="infer", batch_size=2).step().shape == (2, 128, 320)


@pytest.mark.slow
def test_the_fixed_reformer_computes_the_same() -> None:
    first, second = (losses(BUILT_INS[name], 3) for name in ("reformer", "reformer_fixed"))
    assert first == pytest.approx(second, rel=1e-5)


def test_only_one_reformer_copies_a_scalar_in_each_attention() -> None:
    assert {name: copies(name) for name in ("reformer", "reformer_fixed")} == {
        "reformer": 6,
        "reformer_fixed": 0,
    }
