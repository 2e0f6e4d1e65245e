"""What the C++ program is given, and what it refuses to be given."""

from __future__ import annotations

import io
import json
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.collectors import protocol
from tracekit.collectors.compilation import MIN_WARMUP
from tracekit.collectors.libtorch import prepare
from tracekit.collectors.protocol import Reporter

from tests.unit.workloads.building import BUILT_INS, built
from tracekit.errors import UnusableInputError
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
REQUEST = Request(workload="mnist_cnn", steps=4, warmup=3, threads=1)


def exported(program: Any, folder: Path) -> dict[str, Any]:
    from tracekit.collectors.libtorch.export import export

    found: dict[str, Any] = torch.load(export(program, REQUEST, device="cpu", folder=folder))
    return found


def test_a_training_job_has_numbers_and_tensors(tmp_path: Path) -> None:
    program = built(BUILT_INS["mnist_cnn"], seed=1 << 40)
    job = exported(program, tmp_path)
    assert (job["mode"], job["steps"], job["warmup"], job["threads"]) == ("train", 4, 3, 1)
    assert (job["optimizer"], job["lr"], job["momentum"]) == ("SGD", 1e-3, 0.9)
    assert job["seed"] == str(1 << 40), "in words: C++ reads no such number"
    assert [tuple(one.shape) for one in (*job["inputs"], *job["targets"])] == [(16, 1, 28, 28), (16,)]
    loss = torch.jit.load(tmp_path / "module.pt")(*job["inputs"], *job["targets"])
    assert loss.shape == ()
    assert loss.requires_grad
    assert torch.equal(torch.get_rng_state(), job["random_state"])


def test_an_inference_job_has_no_optimizer(tmp_path: Path) -> None:
    program = built(BUILT_INS["bert"], mode="infer")
    job = exported(program, tmp_path)
    assert "optimizer" not in job
    outputs = torch.jit.load(tmp_path / "module.pt")(*job["inputs"])
    torch.testing.assert_close(outputs, program.model(*job["inputs"]))


def test_a_program_without_a_single_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match=r"not a single module.*--level eager"):
        exported(built(BUILT_INS["sac"]), tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.RMSprop(parameters),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
        lambda parameters: torch.optim.Adam(parameters, amsgrad=True),
        lambda parameters: torch.optim.SGD([{"params": [one]} for one in parameters], lr=0.1),
    ],
    ids=["another", "nesterov", "amsgrad", "groups"],
)
def test_an_unsupported_optimizer_is_refused(make: Callable[[Any], Any], tmp_path: Path) -> None:
    program = built(BUILT_INS["mnist_cnn"])
    other = replace(program, optimizer=make(program.model.parameters()))
    with pytest.raises(UnusableInputError, match=r"cannot train with this.*--mode infer"):
        exported(other, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_process_builds_the_program_and_exports_its_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(*, on_build: Callable[[], None]) -> Path:
        on_build()
        return tmp_path / "program"

    stream = io.StringIO()
    asked = decide(Request(workload="mnist_cnn", level="libtorch", device="cpu", batch_size=2, warmup=0))
    monkeypatch.setattr(protocol, "receive_request", lambda: (asked, tmp_path, Reporter(stream)))
    monkeypatch.setattr(prepare, "ensure_built", build)
    ended = signal.getsignal(signal.SIGTERM)
    try:
        assert prepare.main() == 0
        with pytest.raises(SystemExit, match="143"):  # so that a build cleans up
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, ended)
    *progress, final = map(json.loads, stream.getvalue().splitlines())
    assert [one["part"] for one in progress] == ["start", "build", "export"]
    assert (final["program"], final["device"], final["batch_size"]) == (str(tmp_path / "program"), "cpu", 2)
    assert final["notes"] == []
    assert torch.load(final["job"])["warmup"] == MIN_WARMUP
