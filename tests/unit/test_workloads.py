from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tracekit import registry
from tracekit.errors import UnusableInputError
from tracekit.workloads.base import Options, Workload
from tracekit.workloads.mnist_cnn import MNIST_CNN
from tracekit.workloads.resnet50 import RESNET50

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

SMALL = {"mnist_cnn": 28, "resnet50": 32}
CPU = Options(mode="train", device="cpu", batch_size=4, resolution=28)
everyone = pytest.mark.parametrize("workload", [MNIST_CNN, RESNET50], ids=lambda workload: workload.name)


def built(workload: Workload, **options: Any) -> Any:
    return workload.build(replace(CPU, resolution=SMALL[workload.name], **options))


@everyone
def test_the_declared_number_of_parameters_is_exact(workload: Workload) -> None:
    model = built(workload).model
    assert sum(parameter.numel() for parameter in model.parameters()) == workload.parameters


def test_resnet50_has_the_published_number_of_parameters() -> None:
    assert RESNET50.parameters == 25_557_032


def test_resnet50_names_its_state_as_torchvision_does() -> None:
    state = built(RESNET50).model.state_dict()
    assert len(state) == 320
    assert {"conv1.weight", "layer1.0.downsample.1.running_var", "layer4.2.bn3.bias", "fc.weight"} < set(
        state
    )


@pytest.mark.parametrize(("workload", "classes"), [(MNIST_CNN, 10), (RESNET50, 1000)])
def test_inference_gives_logits(workload: Workload, classes: int) -> None:
    logits = built(workload, mode="infer").step()
    assert logits.shape == (4, classes)
    assert not logits.requires_grad


@everyone
def test_the_smallest_resolution_trains(workload: Workload) -> None:
    options = replace(CPU, batch_size=2, resolution=workload.smallest_resolution)
    workload.validate(options)
    assert torch.isfinite(workload.build(options).step())


@pytest.mark.parametrize("dtype", MNIST_CNN.dtypes)
def test_dtypes_reach_parameters_and_loss(dtype: str) -> None:
    program = built(MNIST_CNN, dtype=dtype)
    assert program.step().dtype == getattr(torch, dtype)
    assert {parameter.dtype for parameter in program.model.parameters()} == {getattr(torch, dtype)}


@pytest.mark.parametrize("zero_grad", ["default", "zero", "foreach"])
def test_the_loss_falls(zero_grad: str) -> None:
    program = built(MNIST_CNN, zero_grad=zero_grad)
    losses = [float(program.step()) for _ in range(30)]
    assert losses[-1] < losses[0]


def test_zeroing_gradients_in_any_way_trains_the_same() -> None:
    losses = {
        zero_grad: [float(program.step()) for _ in range(4)]
        for zero_grad in ("default", "zero", "foreach")
        for program in [built(MNIST_CNN, zero_grad=zero_grad)]
    }
    assert losses["zero"] == losses["foreach"] == losses["default"]


def test_the_seed_decides_parameters_and_data() -> None:
    first, second, other = (float(built(MNIST_CNN, seed=seed).step()) for seed in (1, 1, 2))
    assert first == second
    assert first != other


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mode": "evaluate"}, "no mode 'evaluate' (use --mode train or infer)"),
        ({"dtype": "int8"}, "no dtype 'int8'"),
        ({"zero_grad": "never"}, "no zero-grad 'never'"),
        ({"batch_size": 0}, "cannot run with --batch-size 0 (use --batch-size 1 or more)"),
        ({"resolution": 7}, "cannot run with --resolution 7 (use --resolution 8 or more)"),
        ({"batch_size": 1, "resolution": 32}, "use --batch-size 2 or --resolution 33 or more"),
    ],
)
def test_impossible_options_are_refused_with_the_next_step(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UnusableInputError) as refused:
        RESNET50.validate(replace(CPU, **changed))
    assert said in str(refused.value)


def test_one_image_can_train_where_the_last_stage_sees_more_than_a_pixel() -> None:
    options = replace(CPU, batch_size=1, resolution=33)
    RESNET50.validate(options)
    assert torch.isfinite(RESNET50.build(options).step())


def test_metadata_does_not_import_torch() -> None:
    code = (
        "import sys; from tracekit import registry as r; "
        "[r.load(r.WORKLOADS, name) for name in r.names(r.WORKLOADS)]; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_built_ins_are_registered_under_their_names() -> None:
    for workload in (MNIST_CNN, RESNET50):
        assert registry.load(registry.WORKLOADS, workload.name) is workload
