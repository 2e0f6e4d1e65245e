"""Device memory that size `gpu` needs: stated, measured on fake tensors, and the batch that fits."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from tests.tiers import thinned
from tests.unit.workloads.building import BUILT_INS
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request
from tracekit.workloads.base import CONTEXT_BYTES, MARGIN, Memory, Workload

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_iter  # noqa: E402

GIB, MB = 1 << 30, 1_000_000
NOT_FAKE = {"dlrm", "sac", "speech_transformer", "tts"}
"""Workloads whose sizes depend on values: sparse gradients, an environment, alignments."""


class Live(TorchDispatchMode):
    """Counts the bytes of living tensors, in blocks of 512 as the CUDA allocator does."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._live = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        return out

    def _add(self, storage: Any) -> None:
        key, size = storage._cdata, -(-storage.nbytes() // 512) * 512
        if key not in self._known:
            self._known.add(key)
            self._live += size
            self.peak = max(self.peak, self._live)
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._live -= size


def measured(workload: Workload, mode: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Peak of a step, of tensors without memory; attention keeps no weights, as CUDA's kernels."""
    attention = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, **_: module)
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *arguments, dropout_p=0.0, **options: attention(*arguments, **options),
    )
    request = decide(Request(workload=workload.name, size="gpu", device="cpu", mode=mode, batch_size=batch))
    with FakeTensorMode(allow_non_fake_inputs=True), Live() as live:
        program = workload.build(request.options(device="cpu"))
        for _ in range(2):
            program.step()
    return live.peak


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", thinned(sorted({*BUILT_INS} - NOT_FAKE), default=set()))
def test_the_stated_memory_is_that_of_the_tensors(
    name: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = BUILT_INS[name]
    memory, batch = workload.memory[mode], workload.sizes["gpu"]["batch_size"]
    found = measured(workload, mode, batch, monkeypatch)
    assert memory.fixed + batch * memory.sample == pytest.approx(found, rel=0.05)


@pytest.mark.parametrize("name", BUILT_INS)
def test_every_workload_states_its_memory(name: str) -> None:
    workload = BUILT_INS[name]
    assert set(workload.gpu_memory) == set(workload.modes)
    assert CONTEXT_BYTES < workload.gpu_memory["infer"] <= workload.gpu_memory["train"] < 32 * GIB


def test_memory_grows_with_the_batch_and_the_element_type() -> None:
    memory = Memory(fixed=100 * MB, sample=50 * MB)
    assert memory.required_bytes(4, "float32") == CONTEXT_BYTES + MARGIN * 300 * MB
    assert memory.required_bytes(4, "bfloat16") == CONTEXT_BYTES + MARGIN * 150 * MB
    assert memory.required_bytes(4, "float64") == CONTEXT_BYTES + MARGIN * 600 * MB


@pytest.mark.parametrize(
    ("batch", "free_gib", "fits"),
    [(64, 80, 64), (64, 6, 48), (64, 4, 24), (64, 1.7, 5), (64, 0.5, 1), (20, 80, 20), (20, 3, 16)],
)
def test_the_largest_batch_that_fits(batch: int, free_gib: float, fits: int) -> None:
    memory = Memory(fixed=200 * MB, sample=80 * MB)
    assert memory.fit_batch(batch, "float32", int(free_gib * GIB)) == fits
    assert fits in (1, batch) or memory.required_bytes(fits, "float32") <= free_gib * GIB
