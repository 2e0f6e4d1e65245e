"""Workloads of other libraries, with installed libraries or fakes that fail to import."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.workloads.building import built, losses
from tracekit import registry
from tracekit.cli.main import run as tracekit
from tracekit.errors import PluginError
from tracekit.recording.doctor import Status, examine
from tracekit.workloads.base import BUILT_IN, Options
from tracekit.workloads.extras import library, providers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Install = Callable[[str, str], None]

torch = pytest.importorskip("torch")

PROVIDED = {
    "transformers": ("hf_bert", "hf_gpt2", "hf_t5"),
    "timm": ("timm_efficientnet_b0", "timm_mixer_b16", "timm_vit_small"),
    "torchvision": ("torchvision_convnext_tiny", "torchvision_densenet121", "torchvision_vit_b_16"),
}
every_library = pytest.mark.parametrize("name", PROVIDED)
every_model = pytest.mark.parametrize(
    ("library_name", "name"),
    [(library_name, name) for library_name, names in PROVIDED.items() for name in names],
)


def needs(name: str) -> None:
    """Skip if a library is missing or fails to import."""
    try:
        found = import_module(name)
        if name == "transformers":
            assert found.BertForMaskedLM  # imported lazily, with its own dependencies
    except Exception as error:
        pytest.skip(f"{name} does not import: {type(error).__name__}: {error}")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that puts a fake library on the path, before an installed one."""
    monkeypatch.syspath_prepend(tmp_path)

    put_names = []

    def put(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        put_names.append(name)
        for module in _of(name):
            monkeypatch.delitem(sys.modules, module)
        registry._points.cache_clear()

    yield put
    for module in [one for name in put_names for one in _of(name)]:
        del sys.modules[module]
    registry._points.cache_clear()


def _of(name: str) -> list[str]:
    """Return imported modules of a library, and the one that declares its workloads."""
    return [one for one in sys.modules if one.partition(".")[0] == name or one.endswith(f".extras.{name}")]


@every_library
def test_workloads_of_a_library_are_registered_if_it_is_installed(name: str) -> None:
    registered = set(registry.names(registry.WORKLOADS))
    there = find_spec(name) is not None
    assert {one in registered for one in PROVIDED[name]} == {there}
    assert set(getattr(providers, name)()) == (set(PROVIDED[name]) if there else set())


def test_naming_another_workload_imports_no_library(install: Install) -> None:
    install("timm", "raise SystemExit('imported')")
    assert "timm_vit_small" in registry.names(registry.WORKLOADS)
    assert registry.load(registry.WORKLOADS, "mnist_cnn").source == BUILT_IN


def test_an_import_error_of_a_library_is_one_line(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("torchvision", "raise RuntimeError('operator torchvision::nms does not exist\\nmore')")
    assert tracekit(["workloads"]) == 0
    shown = capsys.readouterr()
    assert "mnist_cnn" in shown.out
    (line,) = [one for one in shown.err.splitlines() if "torchvision_vit_b_16" in one]
    assert all(name in line for name in PROVIDED["torchvision"])
    assert "cannot be imported: RuntimeError: operator torchvision::nms does not exist; see" in line
    (check,) = [one for one in examine(tmp_path) if "torchvision_vit_b_16" in one.detail]
    assert (check.name, check.status) == ("plug-ins", Status.WARN)
    assert "a build of torchvision that matches this torch" in check.next_step
    assert tracekit(["collect", "--workload", "torchvision_vit_b_16"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_workloads_of_a_library_are_listed_with_their_source(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("timm", "")
    assert tracekit(["workloads", "--format", "csv"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "timm_efficientnet_b0" in line]
    assert len(rows) == 1
    assert ",timm" in rows[0]


def test_a_class_that_fails_to_import_is_reported_with_the_first_cause(install: Install) -> None:
    install(
        "timm",
        "def __getattr__(name):\n    try:\n        1 / 0\n    except Exception as e:\n"
        "        raise ImportError('see the log') from e\n",
    )
    with pytest.raises(PluginError, match="cannot import its Thing: ZeroDivisionError: division by zero"):
        library.import_class("timm", "Thing")


def test_a_failing_provider_is_reported_and_affects_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tk_provider.py").write_text("def provide():\n    return 1 / 0\n")
    info = tmp_path / "tk_provider-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tk_provider\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.PROVIDERS}]\nbad = tk_provider:provide\n")
    registry._points.cache_clear()
    try:
        assert "mnist_cnn" in registry.names(registry.WORKLOADS)
        (found,) = [one for one in registry.find_broken() if one.group == registry.PROVIDERS]
    finally:
        registry._points.cache_clear()
    assert (found.name, "ZeroDivisionError" in found.reason) == ("bad", True)


@every_model
def test_a_model_has_the_documented_parameters(library_name: str, name: str) -> None:
    needs(library_name)
    workload = registry.load(registry.WORKLOADS, name)
    options = Options(mode="infer", device="meta", **workload.defaults)
    with torch.device("meta"):
        program: Any = workload.build(options)
    assert sum(one.numel() for one in program.model.parameters()) == workload.parameters
    assert workload.source.startswith(library_name)


@every_model
def test_a_model_runs_in_its_smallest_size(library_name: str, name: str) -> None:
    needs(library_name)
    workload = registry.load(registry.WORKLOADS, name)
    first, last = losses(workload, 2)
    assert first > 0
    assert first != last
    answer = built(workload, mode="infer").step()
    assert len(answer) == workload.sizes["test"]["batch_size"]
    assert torch.isfinite(answer).all()
