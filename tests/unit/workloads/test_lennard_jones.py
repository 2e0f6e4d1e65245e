from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built

torch = pytest.importorskip("torch")

WORKLOAD = BUILT_INS["lennard_jones"]


def test_inference_gives_energies_and_forces() -> None:
    energies, forces = built(WORKLOAD, mode="infer", batch_size=7, resolution=3).step()
    assert (energies.shape, forces.shape) == ((7, 3), (7, 3, 3))
    assert not energies.requires_grad
    assert not forces.requires_grad


def test_forces_are_minus_the_slope_of_the_energy() -> None:
    model = built(WORKLOAD, mode="infer", dtype="float64").model
    near = torch.tensor([[[0.6, 0.0, 0.0]]], dtype=torch.float64)
    along = torch.tensor([[[1e-5, 0.0, 0.0]]], dtype=torch.float64)
    slope = (model(near + along)[0] - model(near - along)[0]) / 2e-5
    assert torch.allclose(model(near)[1][0, 0, 0], -slope, rtol=1e-6)


def test_targets_follow_the_potential() -> None:
    (vectors,), (energies, forces) = built(WORKLOAD, dtype="float64").batches.next()
    distances = vectors.norm(dim=-1).requires_grad_()
    expected = 4.0 * ((0.5 / distances) ** 12 - (0.5 / distances) ** 6)
    (slope,) = torch.autograd.grad(expected.sum(), distances)
    assert torch.allclose(energies, expected, atol=1e-4)
    radial = (forces * vectors).sum(dim=-1) / distances
    assert torch.allclose(radial, -slope, rtol=1e-4, atol=1e-4)
