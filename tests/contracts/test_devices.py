"""Peaks of devices: in the installed package, complete, dense, and found by the names drivers give."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest

from tracekit.runs.devices import PRECISIONS, entries, find_device, names, unit_counts

each = pytest.mark.parametrize("entry", [pytest.param(entry, id=entry["name"]) for entry in entries()])
PHYSICAL = {
    # name: (boost clock in MHz, FP32 FLOPs per unit and clock, bus width in bits, Gbit/s per pin)
    "V100 SXM2": (1530, 128, 4096, 1.752),
    "V100 PCIe": (1380, 128, 4096, 1.752),
    "V100S PCIe": (1597, 128, 4096, 2.214),
    "T4": (1590, 128, 256, 10),
    "A10": (1695, 256, 384, 12.5),
    "A10G": (1710, 256, 384, 12.5),
    "A30": (1440, 128, 3072, 2.43),
    "A40": (1740, 256, 384, 14.5),
    "A100 40 GB": (1410, 128, 5120, 2.43),
    "A100 80 GB SXM": (1410, 128, 5120, 3.186),
    "A100 80 GB PCIe": (1410, 128, 5120, 3.024),
    "A800 40 GB": (1410, 128, 5120, 2.43),
    "A800 80 GB SXM": (1410, 128, 5120, 3.186),
    "A800 80 GB PCIe": (1410, 128, 5120, 3.024),
    "L4": (2040, 256, 192, 12.5),
    "L40": (2490, 256, 384, 18),
    "L40S": (2520, 256, 384, 18),
    "GeForce RTX 2080 Ti": (1545, 128, 352, 14),
    "GeForce RTX 3060": (1777, 256, 192, 15),
    "GeForce RTX 3080 10 GB": (1710, 256, 320, 19),
    "GeForce RTX 3080 12 GB": (1710, 256, 384, 19),
    "GeForce RTX 3090": (1695, 256, 384, 19.5),
    "GeForce RTX 3090 Ti": (1860, 256, 384, 21),
    "RTX A5000": (1695, 256, 384, 16),
    "RTX A6000": (1800, 256, 384, 16),
    "GeForce RTX 4080": (2505, 256, 256, 22.4),
    "GeForce RTX 4090": (2520, 256, 384, 21),
    "RTX 6000 Ada": (2505, 256, 384, 20),
    "GeForce RTX 5090": (2407, 256, 512, 28),
    "H100 SXM": (1980, 256, 5120, 5.238),
    "H100 PCIe": (1755, 256, 5120, 3.186),
    "H100 NVL": (1785, 256, 6144, 5.1),
    "H200": (1980, 256, 6144, 6.25),
    "H200 NVL": (1785, 256, 6144, 6.25),
    "H800 SXM": (1980, 256, 5120, 5.238),
    "H800 PCIe": (1755, 256, 5120, 3.186),
    "GH200 96 GB": (1980, 256, 6144, 5.238),
    "GH200 144 GB": (1980, 256, 6144, 6.4),
    "B200": (1965, 256, 7680, 7.992),
    "GB200": (2062, 256, 8192, 7.992),
    "B300": (2032, 256, 7680, 7.992),
    "GB300": (2070, 256, 8192, 7.992),
    "AGX Orin": (1300, 256, 256, 6.4),
    "MI100": (1502, 128, 4096, 2.4),
    "MI210": (1700, 128, 4096, 3.2),
    "MI250": (1700, 128, 4096, 3.2),
    "MI250X": (1700, 128, 4096, 3.2),
    "MI300X": (2100, 256, 8192, 5.2),
    "MI300A": (2100, 256, 8192, 5.2),
    "MI325X": (2100, 256, 8192, 6),
    "MI350X": (2200, 256, 8192, 8),
    "MI355X": (2400, 256, 8192, 8),
    "Radeon RX 7900 XTX": (2500, 256, 384, 20),
    "Radeon PRO W7900": (2495, 256, 384, 18),
    "Radeon AI PRO R9700": (2920, 256, 256, 20),
}
UNRELATED = {
    "H20": "its data sheet lists more FP32 FLOPs than its units and clock give",
    "GB10": "its data sheet lists no FP32",
    "Thor": "its data sheet lists no FP32",
}


def test_the_data_file_is_part_of_the_package() -> None:
    assert resources.files("tracekit.runs").joinpath("devices.json").is_file()


@each
def test_each_device_has_positive_peaks_and_a_dated_source(entry: dict[str, Any]) -> None:
    assert set(entry) - {"memory_gib"} == {"name", "pattern", "units", "gb_per_s", "tflops", "source"}
    assert set(entry["tflops"]) <= set(PRECISIONS)
    numbers = (*entry["tflops"].values(), entry["gb_per_s"], *unit_counts(entry))
    assert all(value > 0 for value in numbers)
    assert re.search(r"\b20[12]\d\b", entry["source"])


@each
def test_narrower_numbers_are_not_slower(entry: dict[str, Any]) -> None:
    peaks = entry["tflops"]
    order = [peaks[name] for name in ("fp64", "fp32", "tf32", "fp16", "fp8") if name in peaks]
    assert order == sorted(order)


@each
def test_peaks_of_matrix_units_are_multiples_of_each_other(entry: dict[str, Any]) -> None:
    """Dense figures: a peak with sparsity would be twice the multiple."""
    peaks = entry["tflops"]
    half = peaks.get("fp16")
    allowed = {"tf32": {0.5}, "bf16": {0.5, 1}, "fp8": {2}, "int8": {1, 2, 4}}
    if "blackwell ultra" in entry["source"].lower():
        allowed["int8"] = {1 / 15}  # few units for integers
    for precision, multiples in allowed.items():
        if half and precision in peaks:
            assert any(peaks[precision] == pytest.approx(half * one, rel=0.06) for one in multiples), (
                precision
            )


def test_each_device_is_checked_against_its_clock_and_bus() -> None:
    assert set(names()) == set(PHYSICAL) | set(UNRELATED)


@pytest.mark.parametrize(
    "entry", [one for one in entries() if one["name"] in PHYSICAL], ids=lambda e: e["name"]
)
def test_peaks_follow_from_units_clock_and_bus(entry: dict[str, Any]) -> None:
    """FP32 = units × clock × FLOPs per clock; FP16 is a power of two per unit and (lower) matrix clock."""
    clock, per_clock, bits, rate = PHYSICAL[entry["name"]]
    unit_gflops = max(unit_counts(entry)) * clock / 1e3
    assert entry["gb_per_s"] == pytest.approx(bits * rate / 8, rel=0.03)
    assert entry["tflops"]["fp32"] * 1e3 == pytest.approx(unit_gflops * per_clock, rel=0.03)
    if "fp16" in entry["tflops"]:
        reached = entry["tflops"]["fp16"] * 1e3 / unit_gflops
        assert any(0.82 <= reached / 2**power <= 1.03 for power in range(8, 15)), reached


@pytest.mark.parametrize(
    ("name", "units", "device", "fp16", "gb_per_s"),
    [
        ("Tesla V100-SXM2-16GB", 80, "V100 SXM2", 125, 900),
        ("Tesla V100-DGXS-32GB", 80, "V100 SXM2", 125, 900),
        ("Tesla T4", 40, "T4", 65, 320),
        ("NVIDIA A10G", 80, "A10G", 70, 600),
        ("NVIDIA A100-PG509-200", 108, "A100 40 GB", 312, 1555),
        ("NVIDIA A100-SXM4-40GB", 108, "A100 40 GB", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", 108, "A100 80 GB SXM", 312, 2039),
        ("NVIDIA A100 80GB PCIe", 108, "A100 80 GB PCIe", 312, 1935),
        ("NVIDIA A800-SXM4-80GB", 108, "A800 80 GB SXM", 312, 2039),
        ("NVIDIA GeForce RTX 3080", 68, "GeForce RTX 3080 10 GB", 59.5, 760),
        ("NVIDIA GeForce RTX 3080", 70, "GeForce RTX 3080 12 GB", 61.3, 912),
        ("NVIDIA GeForce RTX 3090", 82, "GeForce RTX 3090", 71, 936),
        ("NVIDIA GeForce RTX 3090 Ti", 84, "GeForce RTX 3090 Ti", 80, 1008),
        ("GeForce RTX 2080 Ti", 68, "GeForce RTX 2080 Ti", 53.8, 616),
        ("NVIDIA RTX A5000", 64, "RTX A5000", 111.1, 768),
        ("NVIDIA RTX A6000", 84, "RTX A6000", 154.8, 768),
        ("NVIDIA L40S", 142, "L40S", 362, 864),
        ("NVIDIA GeForce RTX 4090", 128, "GeForce RTX 4090", 165.2, 1008),
        ("NVIDIA GeForce RTX 5090", 170, "GeForce RTX 5090", 209.5, 1792),
        ("NVIDIA H20", 78, "H20", 148, 4000),
        ("NVIDIA H800", 132, "H800 SXM", 989.5, 3350),
        ("NVIDIA H100 80GB HBM3", 132, "H100 SXM", 989.4, 3350),
        ("NVIDIA H100 PCIe", 114, "H100 PCIe", 756, 2000),
        ("NVIDIA H200", 132, "H200", 989.4, 4800),
        ("NVIDIA GH200 144G HBM3e", 132, "GH200 144 GB", 989.4, 4900),
        ("NVIDIA B200", 148, "B200", 2250, 7700),
        ("NVIDIA GB200", 152, "GB200", 2500, 8000),
        ("NVIDIA B300 SXM6 AC", 148, "B300", 2250, 7700),
        ("NVIDIA GB300", 152, "GB300", 2500, 8000),
        ("NVIDIA Thor", 20, "Thor", 258.5, 273),
        ("AMD Instinct MI210", 104, "MI210", 181, 1638.4),
        ("AMD Instinct MI250X / MI250", 104, "MI250", 181, 1638.4),
        ("AMD Instinct MI250X / MI250", 110, "MI250X", 191.5, 1638.4),
        ("AMD Radeon Graphics", 104, "MI250", 181, 1638.4),
        ("AMD Instinct MI300X VF", 304, "MI300X", 1307.4, 5325),
        ("AMD Instinct MI350X", 256, "MI350X", 2306.9, 8000),
        ("Radeon RX 7900 XTX", 48, "Radeon RX 7900 XTX", 122.8, 960),
    ],
)
def test_names_of_drivers_are_known(name: str, units: int, device: str, fp16: float, gb_per_s: float) -> None:
    found = find_device(name, units)
    assert found is not None
    assert (found.name, found.tflops["fp16"], found.gb_per_s) == (device, fp16, gb_per_s)
    assert find_device(name, units // 2 - 1) is None


@pytest.mark.parametrize(("name", "units"), [("Orin", 16), ("NVIDIA GB10", 48)])
def test_boards_without_a_known_half_precision_have_the_rest(name: str, units: int) -> None:
    found = find_device(name, units)
    assert found is not None
    assert found.peak("fp16") is None
    assert found.gb_per_s


def test_memory_tells_two_boards_of_the_same_name_and_units_apart() -> None:
    of_12_gb = find_device("NVIDIA GeForce RTX 3060", 28, 12_622_168_064)
    assert of_12_gb is not None
    assert of_12_gb.gb_per_s == 360
    assert find_device("NVIDIA GeForce RTX 3060", 28, 8_589_410_304) is None
    assert find_device("NVIDIA GeForce RTX 3060", 28) is None


def test_units_tell_two_boards_of_the_same_name_apart() -> None:
    of_12_gb = find_device("NVIDIA GeForce RTX 3080", 70)
    assert of_12_gb is not None
    assert of_12_gb.name == "GeForce RTX 3080 12 GB"
    assert find_device("NVIDIA GeForce RTX 3080", 34) is None


def test_published_peaks() -> None:
    """Table 3 of TorchBench: A100 and MI210."""
    a100, mi210 = find_device("NVIDIA A100-SXM4-40GB"), find_device("AMD Instinct MI210")
    assert a100 is not None
    assert mi210 is not None
    assert (a100.tflops["fp32"], a100.tflops["tf32"], mi210.tflops["fp32"]) == (19.5, 156, 22.6)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA GeForce RTX 3060 Laptop GPU",
        "NVIDIA GeForce RTX 3080",
        "NVIDIA H100",
        "AMD Instinct MI250X / MI250",
        "AMD Instinct MI308X",
        "AMD Radeon Graphics",
        "Quadro T4",
    ],
)
def test_variants_that_are_not_listed_are_unknown(name: str) -> None:
    assert find_device(name) is None
