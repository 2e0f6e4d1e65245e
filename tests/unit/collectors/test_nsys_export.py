"""Contents and diagnostics of exports of nsys, from public recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracekit.collectors.nsys.collector import DEVICE_WORK, HOST_WORK, has_rows, worst_diagnostic

from tests.nsys import write_export

EXPORTS = Path(__file__).parents[3] / ".." / "shared" / "nsys"


def recorded(name: str) -> Path:
    path = EXPORTS / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return path


@pytest.mark.parametrize(
    ("name", "device", "host"),
    [
        ("0x822a5b87__test-cuda/report1.sqlite", True, True),
        ("extra-p__extrap/profile1.sqlite", True, True),
        ("lighttransport__gemm/profile_no_kernels.sqlite", False, True),
        ("nevakrien__python_c_nvidia/report1_osrt_only.sqlite", False, True),
    ],
)
def test_exports_with_and_without_rows_are_distinguished(name: str, device: bool, host: bool) -> None:
    assert has_rows(recorded(name), DEVICE_WORK) == device
    assert has_rows(recorded(name), HOST_WORK) == host


def test_the_worst_and_latest_diagnostic_is_returned() -> None:
    assert worst_diagnostic(recorded("lighttransport__gemm/profile_no_kernels.sqlite")) == (
        "Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems. "
        "CUDA trace will be collected using libraries for driver version 12.9"
    )
    assert worst_diagnostic(recorded("extra-p__extrap/profile1.sqlite")) == "", "it has no such table"


def test_an_error_is_worse_than_a_later_warning(tmp_path: Path) -> None:
    said = [(3, "no driver"), (2, "no events"), (1, "stopped")]
    assert worst_diagnostic(write_export(tmp_path / "run #1?.sqlite", said=said)) == "no driver"
