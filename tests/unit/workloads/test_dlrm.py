"""DLRM: sizes, feature interaction, and sparse updates."""

from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built, losses
from tracekit.workloads.base import ZERO_GRADS

torch = pytest.importorskip("torch")


def test_dlrm_has_the_parameters_of_its_sizes() -> None:
    from tracekit.workloads.dlrm import ROWS

    widths = [(13, 512), (512, 256), (256, 64), (64, 16), (16 + 27 * 26 // 2, 512), (512, 256), (256, 1)]
    dense = sum((inputs + 1) * outputs for inputs, outputs in widths)
    assert len(ROWS) == 26
    assert dense + 16 * sum(ROWS) == BUILT_INS["dlrm"].parameters


@pytest.mark.parametrize("bag", [1, 3])
def test_dlrm_gives_a_logit_of_each_sample(bag: int) -> None:
    assert built(BUILT_INS["dlrm"], mode="infer", batch_size=5, resolution=bag).step().shape == (5,)


def test_dlrm_interacts_each_pair_of_features_once() -> None:
    model = built(BUILT_INS["dlrm"], mode="infer").model
    features = torch.randn(27, 16, dtype=torch.float64)
    made = model._interact(features[:1], [row.unsqueeze(0) for row in features[1:]])
    pairs = [features[i] @ features[j] for i in range(27) for j in range(i)]
    torch.testing.assert_close(made[0], torch.cat([features[0], torch.stack(pairs)]))


def test_dlrm_changes_only_the_rows_it_looked_up() -> None:
    program = built(BUILT_INS["dlrm"], batch_size=4)
    table = program.model.tables[0]
    before = table.weight.detach().clone()
    program.step()
    changed = (table.weight != before).any(dim=1).nonzero().flatten().tolist()
    looked_up = program.batches.inputs[1][:, 0].flatten().unique().tolist()
    assert changed
    assert set(changed) <= set(looked_up)


def test_dlrm_trains_the_same_with_each_zero_grad() -> None:
    found = [losses(BUILT_INS["dlrm"], 3, zero_grad=way) for way in ZERO_GRADS]
    assert found[0] == found[1] == found[2]
