from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.workloads.building import BUILT_INS, built, losses
from tracekit.errors import UnusableInputError
from tracekit.workloads.base import Options
from tracekit.workloads.built_in import MNIST_CNN, RESNET50

torch = pytest.importorskip("torch")

CPU = Options(mode="train", device="cpu", batch_size=4, resolution=28)


@pytest.mark.parametrize("dtype", MNIST_CNN.dtypes)
def test_every_dtype_can_train(dtype: str) -> None:
    assert torch.isfinite(built(MNIST_CNN, dtype=dtype).step())


def test_each_zero_grad_trains_the_same() -> None:
    found = {
        zero_grad: losses(MNIST_CNN, 4, zero_grad=zero_grad) for zero_grad in ("default", "zero", "foreach")
    }
    assert found["zero"] == found["foreach"] == found["default"]


@pytest.mark.parametrize(("name", "optimizer"), [("mnist_cnn", "SGD"), ("lennard_jones", "Adam")])
@pytest.mark.parametrize("zero_grad", ["default", "zero", "foreach"])
def test_zero_grad_has_the_range_name_of_torch(name: str, optimizer: str, zero_grad: str) -> None:
    program = built(BUILT_INS[name], zero_grad=zero_grad)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        program.step()
    recorded = {event.name for event in profiler.events()}
    assert f"Optimizer.zero_grad#{optimizer}.zero_grad" in recorded
    assert "enumerate(DataLoader)#HostBatches.__next__" in recorded


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mode": "evaluate"}, "no mode 'evaluate' (use --mode train or infer)"),
        ({"dtype": "int8"}, "no dtype 'int8'"),
        ({"zero_grad": "never"}, "no zero-grad 'never'"),
        ({"offload": "disk"}, "no offload 'disk' (use --offload none or parameters or activations)"),
        ({"batch_size": 0}, "cannot run with --batch-size 0 (use --batch-size 1 or more)"),
        ({"resolution": 7}, "cannot run with --resolution 7 (use --resolution 8 or more)"),
        ({"batch_size": 1, "resolution": 32}, "use --batch-size 2 or --resolution 33 or more"),
    ],
)
def test_impossible_options_are_refused_with_the_next_step(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UnusableInputError) as refused:
        RESNET50.validate(replace(CPU, **changed))
    assert said in str(refused.value)


@pytest.mark.slow_except("mobilenet_v2-33", "unet-32")
@pytest.mark.parametrize(
    ("name", "side"), [("resnet18", 33), ("resnet50", 33), ("mobilenet_v2", 33), ("unet", 32)]
)
def test_one_image_trains_if_the_deepest_layer_has_more_than_a_pixel(name: str, side: int) -> None:
    workload = BUILT_INS[name]
    assert torch.isfinite(built(workload, batch_size=1, resolution=side).step())
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        workload.build(replace(CPU, batch_size=1, resolution=side - 1, size="test")).step()
    with pytest.raises(UnusableInputError, match=f"--resolution {side} or more"):
        built(workload, batch_size=1, resolution=side - 1)


def test_metadata_does_not_import_torch() -> None:
    code = (
        "import sys; from tracekit import registry as r; "
        "[r.load(r.WORKLOADS, name) for name in r.names(r.WORKLOADS)]; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_built_ins_are_registered_under_their_names() -> None:
    assert {name: workload.name for name, workload in BUILT_INS.items()} == {name: name for name in BUILT_INS}
