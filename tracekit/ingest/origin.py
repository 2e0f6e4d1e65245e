"""What traces say about where they come from, for what the collector did not know."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracekit.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.kineto.toplevel import DeviceProperties, TopLevel
    from tracekit.meta import RunMeta


def completed(meta: RunMeta, tops: Sequence[TopLevel], *, has_device: bool) -> RunMeta:
    """Fill in the GPUs, CUDA's version and the fingerprint from what the traces say about themselves.

    Args:
        meta: What is known already; it stands.
        tops: The top level of each rank's trace.
        has_device: Whether anything ran on a device.
    """
    top = tops[0]
    environment = dict(meta.environment)
    environment["gpus"] = _gpus(environment.get("gpus") or [], top.devices)
    environment.setdefault("cuda", _version(top.cuda_runtime))
    if top.driver and not environment.get("driver"):
        environment["driver"] = top.driver
    options = {**meta.collector.options, **_told(top)}
    return replace(
        meta,
        environment=environment,
        collector=replace(meta.collector, options=options),
        fingerprint=meta.fingerprint or _fingerprint(tops, environment, has_device=has_device),
    )


def _told(top: TopLevel) -> dict[str, Any]:
    """What the trace says of how it came to be."""
    told = {"simulated": top.simulated or None, "tool": top.tool}
    return {name: value for name, value in told.items() if value is not None}


def _fingerprint(
    tops: Sequence[TopLevel], environment: dict[str, Any], *, has_device: bool
) -> dict[str, Any]:
    top = tops[0]
    flags = {
        "record_shapes": _flag(top.record_shapes),
        "profile_memory": _flag(top.profile_memory),
        "with_stack": _flag(top.with_stack),
    }
    declared = top.distributed.world_size if top.distributed else None
    return {
        **fingerprint({"device": "cuda" if has_device else "cpu"}, environment, flags, collector="import"),
        "world_size": declared or len(tops),
    }


def _flag(value: int | None) -> bool | None:
    """Kineto writes 1 for an option that is on, and nothing for one that is off or unknown."""
    return None if value is None else bool(value)


def _gpus(known: list[dict[str, Any]], traced: Sequence[DeviceProperties]) -> list[dict[str, Any]]:
    """The GPUs the collector knew, with what only the trace says of them; else the trace's own."""
    told = {device.index: _gpu(device) for device in traced}
    return [{**told.get(gpu["index"], {}), **gpu} for gpu in known] or list(told.values())


def _gpu(device: DeviceProperties) -> dict[str, Any]:
    return {
        "index": device.index,
        "name": device.name,
        "memory_bytes": device.memory_bytes,
        "sm_count": device.sm_count,
        "compute_capability": f"{device.major}.{device.minor}" if device.major is not None else None,
        "max_threads_per_sm": device.max_threads_per_sm,
        "registers_per_sm": device.registers_per_sm,
        "shared_bytes_per_sm": device.shared_bytes_per_sm,
        "warp_size": device.warp_size,
        **({"uuid": device.uuid} if device.uuid else {}),
    }


def _version(number: int | None) -> str | None:
    """CUDA's version as people write it: 12040 is 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
