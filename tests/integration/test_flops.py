"""FLOPs against torch's own counter: recorded on the CPU, imported, counted once per call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.analysis import analyze
from tracekit.ingest.importer import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.runs.store import Store

torch: Any = pytest.importorskip("torch")
SIZES = (9, 11, 7)


def convolution(
    dimensions: int = 2, *, transposed: bool = False, groups: int = 1, **options: Any
) -> Callable[[], None]:
    kind = "ConvTranspose" if transposed else "Conv"
    layer = getattr(torch.nn, f"{kind}{dimensions}d")(4, 8, 3, groups=groups, **options)
    data = torch.randn(2, 4, *SIZES[:dimensions], requires_grad=True)
    return lambda: layer(data).sum().backward()


def linear() -> Callable[[], None]:
    layer, data = torch.nn.Linear(5, 7), torch.randn(3, 2, 5, requires_grad=True)
    return lambda: layer(data).sum().backward()


def products() -> Callable[[], None]:
    left, right = torch.randn(3, 4, 5, requires_grad=True), torch.randn(3, 5, 6, requires_grad=True)
    return lambda: (left @ right).sum().backward()


def attention(backend: str) -> Callable[[], None]:
    query = torch.randn(2, 3, 16, 8, requires_grad=True)
    key, value = (torch.randn(2, 3, 20, 8, requires_grad=True) for _ in range(2))

    def run() -> None:
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            torch.nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()

    return run


CASES = {
    "convolution": convolution,
    "strided": lambda: convolution(stride=2, padding=1),
    "dilated": lambda: convolution(dilation=2, padding=(1, 2)),
    "one-dimensional": lambda: convolution(1),
    "three-dimensional": lambda: convolution(3, stride=(1, 2, 1)),
    "transposed": lambda: convolution(transposed=True, stride=2, padding=1, output_padding=1),
    "linear": linear,
    "batched": products,
    "attention of products": lambda: attention("MATH"),
}


def counted(run: Callable[[], None], store: Store, tmp_path: Path) -> tuple[dict[str, float], float]:
    """FLOPs by op as imported, and in all as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run()
    path = tmp_path / "trace.json"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    (imported,) = import_traces(store, [path])
    host = analyze(imported, "roofline").tables["host"]
    return host.groupby("op")[C.FLOPS].sum().to_dict(), counter.get_total_flops()


@pytest.mark.parametrize("case", CASES)
def test_flops_equal_those_of_torch(case: str, store: Store, tmp_path: Path) -> None:
    by_op, expected = counted(CASES[case](), store, tmp_path)
    assert sum(by_op.values()) == expected > 0


def test_the_weight_gradient_of_groups_counts_its_own_channels(store: Store, tmp_path: Path) -> None:
    by_op, of_torch = counted(convolution(groups=2), store, tmp_path)
    forward = 2 * (2 * 8 * 7 * 9) * (2 * 3 * 3)
    assert by_op == {"aten::_convolution": forward, "aten::convolution_backward": 2 * forward}
    assert of_torch == 4 * forward  # the weight gradient twice too much: the channels of both groups


def test_fused_attention_is_two_products_forward_and_five_backward(store: Store, tmp_path: Path) -> None:
    by_op, _ = counted(attention("FLASH_ATTENTION"), store, tmp_path)
    product = 2 * 2 * 3 * 16 * 20 * 8
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert by_op == {name: 2 * product, f"{name}_backward": 5 * product}
