"""CUPTI's messages as Kineto writes them, between other output."""

from __future__ import annotations

import pytest

from tracekit.recording import cupti

# as reported by users of torch 2.2 and 2.8
LOADED_ANOTHER = """
WARNING:2024-02-02 09:53:39 166:166 init.cpp:155] function cbapi->getCuptiStatus() failed with error CUPTI_ERROR_NOT_INITIALIZED (15)
WARNING:2024-02-02 09:53:39 166:166 init.cpp:156] CUPTI initialization failed - CUDA profiler activities will be missing
INFO:2024-02-02 09:53:39 166:166 init.cpp:158] If you see CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, refer to https://developer.nvidia.com/nvidia-development-tools-solutions-err-nvgpuctrperm-cupti
epoch 1
"""  # noqa: E501
ATTACHED = """
[W1111 08:00:01.120533214 CuptiActivityApi.cpp:219] function cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)
[W1111 08:00:01.120571216 CuptiActivityApi.cpp:219] function cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)
"""  # noqa: E501


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            LOADED_ANOTHER,
            "function cbapi->getCuptiStatus() failed with error CUPTI_ERROR_NOT_INITIALIZED (15): the CUPTI "
            "that was loaded does not fit the driver",
        ),
        (ATTACHED, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39): another profiler is attached"),
        (
            LOADED_ANOTHER.replace("NOT_INITIALIZED", "INSUFFICIENT_PRIVILEGES"),
            "the driver lets only administrators profile",
        ),
        (
            "init.cpp:156] CUPTI initialization failed - CUDA profiler activities will be missing",
            "CUPTI initialization failed - CUDA profiler activities will be missing: device activity may",
        ),
        (
            "x.cpp:1] failed with error CUPTI_ERROR_UNKNOWN (999)",
            "CUPTI_ERROR_UNKNOWN (999): device activity",
        ),
    ],
)
def test_each_error_is_reported_once_with_its_cause(log: str, said: str) -> None:
    [found] = cupti.diagnostics(log)
    assert (found.code, found.level) == ("cupti", "warn")
    assert said in found.message
    assert "cpp" not in found.message
    assert "If you see" not in found.message


def test_several_errors_are_several_diagnostics() -> None:
    assert len(cupti.diagnostics(LOADED_ANOTHER + ATTACHED)) == 2


def test_other_output_says_nothing() -> None:
    assert cupti.diagnostics("INFO: If you see CUPTI_ERROR_HARDWARE_BUSY, wait\nUSDT: cupti\n") == []
