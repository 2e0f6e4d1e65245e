"""What a trace says about itself beside its events."""

from __future__ import annotations

import msgspec

from tracekit.ingest.kineto.repair import repair
from tracekit.ingest.limits import LATEST_NS, MOST_RANKS, MOST_REPAIRED_BYTES


class DeviceProperties(msgspec.Struct):
    """One entry of `deviceProperties`."""

    index: int = msgspec.field(default=0, name="id")
    name: str = ""
    memory_bytes: int | None = msgspec.field(default=None, name="totalGlobalMem")
    major: int | None = msgspec.field(default=None, name="computeMajor")
    minor: int | None = msgspec.field(default=None, name="computeMinor")
    sm_count: int | None = msgspec.field(default=None, name="numSms")
    max_threads_per_sm: int | None = msgspec.field(default=None, name="maxThreadsPerMultiprocessor")
    registers_per_sm: int | None = msgspec.field(default=None, name="regsPerMultiprocessor")
    shared_bytes_per_sm: int | None = msgspec.field(default=None, name="sharedMemPerMultiprocessor")
    warp_size: int | None = msgspec.field(default=None, name="warpSize")
    uuid: str | None = None


class Distributed(msgspec.Struct):
    """`distributedInfo`: the trace's place in its job."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class TopLevel(msgspec.Struct):
    """What stands beside the events and is kept; host and user names are not."""

    devices: list[DeviceProperties] = msgspec.field(default_factory=list, name="deviceProperties")
    distributed: Distributed | None = msgspec.field(default=None, name="distributedInfo")
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    cuda_runtime: int | None = msgspec.field(default=None, name="cuda_runtime_version")
    cuda_driver: int | None = msgspec.field(default=None, name="cuda_driver_version")
    hip_runtime: int | None = msgspec.field(default=None, name="hip_runtime_version")
    with_stack: int | None = None
    record_shapes: int | None = None
    profile_memory: int | None = None
    driver: str | None = msgspec.field(default=None, name="tracekit_driver")
    tool: str | None = msgspec.field(default=None, name="tracekit_tool")
    simulated: bool = msgspec.field(default=False, name="tracekit_simulated")


def top_level(header: bytes, after: bytes) -> TopLevel:
    """Decode what stands around the events; fields of an unexpected type are left out.

    Args:
        header: Text up to the bracket that opens the events.
        after: Text from the bracket that closes them; may be cut or empty.

    Example:
        >>> top_level(b'{"traceEvents": [', b'], "baseTimeNanoseconds": 7}').base_ns
        7
    """
    if not header.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return TopLevel()
    for text in (header + (after or b"]}"), header + b"]}"):
        fields = _fields(text)
        if fields is None and len(text) <= MOST_REPAIRED_BYTES:
            fields = _fields(repair(text))
        if fields is not None:
            return _known_fields(fields)
    return TopLevel()


def _fields(text: bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _known_fields(fields: dict[str, msgspec.Raw]) -> TopLevel:
    known = {}
    for spec in msgspec.structs.fields(TopLevel):
        raw = fields.get(spec.encode_name)
        if raw is None:
            continue
        try:
            known[spec.name] = msgspec.json.decode(raw, type=spec.type, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return _plausible(TopLevel(**known))


def _plausible(found: TopLevel) -> TopLevel:
    """What is said, without an instant or a rank that nothing could be added to."""
    if not 0 <= found.base_ns < LATEST_NS:
        found.base_ns = 0
    if found.distributed and not 0 <= (found.distributed.rank or 0) < MOST_RANKS:
        found.distributed = None
    return found
