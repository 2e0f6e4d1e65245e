"""Peaks of devices: in the installed package, complete, dense, and found by the names drivers give."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from tracekit.analyses.roofline.devices import entries, known

PRECISIONS = {"fp64", "fp64_matrix", "fp32", "fp32_matrix", "tf32", "fp16", "bf16", "fp8", "int8"}
each = pytest.mark.parametrize("entry", [pytest.param(entry, id=entry["name"]) for entry in entries()])


def test_the_data_file_is_part_of_the_package() -> None:
    assert resources.files("tracekit.analyses.roofline").joinpath("devices.json").is_file()


@each
def test_each_device_has_positive_peaks_and_a_dated_source(entry: dict[str, object]) -> None:
    assert set(entry) == {"name", "pattern", "units", "gb_per_s", "tflops", "source"}
    peaks = entry["tflops"]
    assert isinstance(peaks, dict)
    assert set(peaks) <= PRECISIONS
    assert all(value > 0 for value in (*peaks.values(), entry["gb_per_s"], entry["units"]))
    assert re.search(r"\b20[12]\d\b", str(entry["source"]))


@each
def test_narrower_numbers_are_not_slower(entry: dict[str, object]) -> None:
    peaks = entry["tflops"]
    assert isinstance(peaks, dict)
    order = [peaks[name] for name in ("fp64", "fp32", "tf32", "fp16", "fp8") if name in peaks]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("name", "device", "fp16", "gb_per_s"),
    [
        ("Tesla V100-SXM2-16GB", "V100 SXM2", 125, 900),
        ("Tesla T4", "T4", 65, 320),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB SXM", 312, 2039),
        ("NVIDIA A100 80GB PCIe", "A100 80 GB PCIe", 312, 1935),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090", 71, 936),
        ("GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti", 53.8, 616),
        ("NVIDIA RTX A6000", "RTX A6000", 154.8, 768),
        ("NVIDIA L40S", "L40S", 362, 864),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 989.4, 3350),
        ("NVIDIA H100 PCIe", "H100 PCIe", 756, 2000),
        ("NVIDIA H200", "H200", 989.4, 4800),
        ("NVIDIA B200", "B200", 2250, 8000),
        ("AMD Instinct MI210", "MI210", 181, 1638.4),
        ("AMD Instinct MI300X VF", "MI300X", 1307.4, 5325),
    ],
)
def test_names_of_drivers_are_known(name: str, device: str, fp16: float, gb_per_s: float) -> None:
    found = known(name)
    assert found is not None
    assert (found.name, found.tflops["fp16"], found.gb_per_s) == (device, fp16, gb_per_s)


def test_published_peaks() -> None:
    """Table 3 of TorchBench: A100 and MI210."""
    a100, mi210 = known("NVIDIA A100-SXM4-40GB"), known("AMD Instinct MI210")
    assert a100 is not None
    assert mi210 is not None
    assert (a100.tflops["fp32"], a100.tflops["tf32"], mi210.tflops["fp32"]) == (19.5, 156, 22.6)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA A10G",
        "NVIDIA H100",
        "AMD Radeon Graphics",
        "Quadro T4",
    ],
)
def test_variants_that_are_not_listed_are_unknown(name: str) -> None:
    assert known(name) is None
