"""The fields that decide whether two runs can be compared, flat and by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.workloads.options import WorkloadOptions, declared

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKLOAD_FIELDS = tuple(option.name for option in declared(WorkloadOptions) if option.compared)
ENVIRONMENT_FIELDS = ("python", "torch", "cuda", "cudnn", "driver", "cpu")
PROFILER_FIELDS = ("record_shapes", "profile_memory", "with_stack")


def fingerprint(
    workload: Mapping[str, Any], environment: Mapping[str, Any], options: Mapping[str, Any], *, collector: str
) -> dict[str, Any]:
    """Collect the stable fields of a run; one that is unknown is None, never absent.

    Args:
        workload: `workload` of `run.json`.
        environment: `environment` of `run.json`.
        options: Options the collector ran with.
        collector: Its name.
    """
    used = environment.get("gpus", []) if workload.get("device") == "cuda" else []
    gpu: Mapping[str, Any] = used[0] if used else {}
    return {
        "workload": workload.get("name"),
        **{name: workload.get(name) for name in WORKLOAD_FIELDS},
        **{name: environment.get(name) for name in ENVIRONMENT_FIELDS},
        "gpu": gpu.get("name"),
        "sm_count": gpu.get("sm_count"),
        "compute_capability": gpu.get("compute_capability"),
        "world_size": 1,
        "collector": collector,
        **{f"profiler_{name}": options.get(name) for name in PROFILER_FIELDS},
    }
