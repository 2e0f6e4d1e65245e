"""`run.json`: the metadata of a run, and its fingerprint.

Environment variables, host names and user names are not stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from tracekit import errors, storage
from tracekit.errors import UnusableInputError
from tracekit.runs.environment import CPUS, program_settings
from tracekit.schema import SCHEMA_VERSION
from tracekit.storage import Place

FILE_NAME = "run.json"
MAX_BYTES = 64 << 20
"""Limit of the bytes of a `run.json`, as listing runs reads all of them; thousands of steps take 1 MB."""
_UNREADABLE = (ValueError, RecursionError)  # errors of msgspec and of invalid UTF-8 are ValueErrors
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Form of run ids, which are names of folders: no path separators, no leading dot."""
UNPROFILED = {"profile": False}
"""Collector option of a run that was timed and sampled, but not profiled."""


Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An integer in the range of int64, as in columns; others are damage."""


class Level(StrEnum):
    """Severity of a diagnostic for the run's numbers."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True)
class Diagnostic:
    """A diagnostic of the import or the collector: repaired, dropped or missing data."""

    level: Level
    code: str
    message: str

    def __post_init__(self) -> None:
        """Escape control characters: a message may contain names from a file."""
        object.__setattr__(self, "message", errors.exception_message(self.message))


@dataclass(frozen=True)
class Collector:
    """The collector of a run, its version and options."""

    name: str
    version: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Git:
    """State of the repository of the workload.

    Attributes:
        submodules: Checked-out commit of each submodule, recursively, by path.
    """

    sha: str
    tree: str
    branch: str | None
    dirty: bool
    diff_sha256: str | None
    commit_time: str
    submodules: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Timings:
    """Step times of the same configuration without a profiler.

    Attributes:
        step_ns: Duration of each step, ns: of steps before the profile, then of those after it.
        warmup_ns: Duration of each warm-up step before them, ns.
        clock: `perf_counter` on the CPU, `cuda_event` on a device.
        later: How many of the steps are after the profile.
        left_out: Steps after the profile that were not timed, as its end may affect them.
    """

    step_ns: list[Int64]
    warmup_ns: list[Int64]
    clock: str
    later: int = 0
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class CpuLoad:
    """Use of the CPU around the timed steps of one rank, in ns; None where the system does not tell it.

    Attributes:
        rank: The rank.
        cores: Cores that its process may use.
        wall_ns: Length of the time around the steps.
        cpu_ns: CPU time of the process.
        step_thread_cpu_ns: CPU time of the thread of the steps.
        step_thread_wait_ns: Time in which that thread was ready to run and waited for a core.
        thread_wait_ns: The same of all threads of the process.
        switches: How often that thread lost its core to another.
        program_ns: CPU time of all processes of the program.
        others_ns: CPU time of other programs on these cores.
        steal_ns: Time that the host of a virtual machine took from these cores.
        throttled_ns: Time for which the control group was throttled.
    """

    rank: int
    cores: int
    wall_ns: Int64
    cpu_ns: Int64
    step_thread_cpu_ns: Int64 | None = None
    step_thread_wait_ns: Int64 | None = None
    thread_wait_ns: Int64 | None = None
    switches: Int64 | None = None
    program_ns: Int64 | None = None
    others_ns: Int64 | None = None
    steal_ns: Int64 | None = None
    throttled_ns: Int64 | None = None


@dataclass(frozen=True)
class PartFile:
    """A part file of a table: name in the table's folder, rows, bytes, and SHA-256.

    Attributes:
        footer: CRC-32 of the file's footer; None in runs of old versions.
    """

    name: str
    rows: Int64
    bytes: Int64
    sha256: str
    footer: int | None = None


@dataclass(frozen=True)
class TableFile:
    """A stored table: rows, bytes on disk, and SHA-256 of its file or of its parts in order.

    Attributes:
        parts: Its files, in order, if they were delivered separately, as to object storage. Each then has its
            own digest, and `sha256` is that of the list of digests. Other files do not belong to the table.
        footers: CRC-32 of the footer of each file, by name; empty in runs of old versions. They are compared
            before Arrow reads the footers, as a damaged one may end the process.
    """

    rows: Int64
    bytes: Int64
    sha256: str
    parts: list[PartFile] = field(default_factory=list)
    footers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunMeta:
    """The content of `run.json`.

    Attributes:
        t0_unix_ns: The zero of the run's times, ns since the Unix epoch.
        fingerprint: Stable identifiers that decide comparability, by field name.
        cpu_loads: Use of the CPU around the timed steps; empty in runs of old versions.
    """

    run_id: str
    created_at: str
    t0_unix_ns: Int64
    collector: Collector
    schema_version: int = SCHEMA_VERSION
    label: str | None = None
    workload: dict[str, Any] | None = None
    command: list[str] = field(default_factory=list)
    git: Git | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    fingerprint: dict[str, Any] = field(default_factory=dict)
    timings: Timings | None = None
    cpu_loads: list[CpuLoad] = field(default_factory=list)
    tables: dict[str, TableFile] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def profiled(self) -> bool:
        """Whether the run was profiled; otherwise it has step times and samples, but no intervals."""
        return not UNPROFILED.items() <= self.collector.options.items()


def header(meta: RunMeta) -> RunMeta:
    """Return what lists of runs show: metadata without packages, single step times and files of tables.

    Kept are the numbers of rows and bytes, the names of GPUs, names and bytes of imported files, and the mean
    of the step times in place of all.
    """
    timings, options = meta.timings, meta.collector.options
    shown = {name: options[name] for name in UNPROFILED if name in options}
    mean = None
    if timings and timings.step_ns:
        mean = Timings([round(sum(timings.step_ns) / len(timings.step_ns))], [], timings.clock)
    if sources := _objects(options.get("sources")):
        shown["sources"] = [{key: source.get(key) for key in ("name", "bytes")} for source in sources]
    return replace(
        meta,
        collector=replace(meta.collector, options=shown),
        command=[],
        environment={"gpus": [{"name": gpu.get("name")} for gpu in _objects(meta.environment.get("gpus"))]},
        fingerprint={name: value for name, value in meta.fingerprint.items() if value is not None},
        git=replace(meta.git, submodules={}) if meta.git else None,
        timings=mean,
        cpu_loads=[],
        tables={name: TableFile(table.rows, table.bytes, "") for name, table in meta.tables.items()},
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; a `run.json` written by others may have anything there."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def read(directory: Place) -> RunMeta:
    """Read a run's metadata.

    Raises:
        NewerVersionError: The run has a newer schema version.
        UnusableInputError: The file is missing, not a run's metadata, or of an older schema version.
    """
    try:
        content = storage.read_own(directory / FILE_NAME, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise _no_run_error(directory, error) from error
    return decode(content, directory)


def decode(content: bytes, directory: Place) -> RunMeta:
    """Decode a run's metadata; raises the errors of `read`."""
    try:
        # Decoded alone first: a newer version may have other fields.
        version = msgspec.json.decode(content, type=_Version).schema_version
    except _UNREADABLE as error:
        raise _no_run_error(directory, error) from error
    if version != SCHEMA_VERSION:
        message = f"{directory} has schema version {version}, but this tracekit reads {SCHEMA_VERSION}"
        if version > SCHEMA_VERSION:
            raise NewerVersionError(message, hint="upgrade tracekit")
        raise UnusableInputError(message, hint="import the trace again with `tracekit import`")
    try:
        meta = msgspec.json.decode(content, type=RunMeta)
    except _UNREADABLE as error:
        raise _damage_error(directory, str(error)) from error
    if "gpus" in meta.environment:
        meta.environment["gpus"] = _objects(meta.environment["gpus"])
    if not RUN_ID.fullmatch(meta.run_id):
        raise _damage_error(directory, f"run_id {meta.run_id[:80]!r} is none")
    return meta


def _damage_error(directory: Place, why: str) -> UnusableInputError:
    message = f"{directory / FILE_NAME} is damaged: {why}"
    return UnusableInputError(message, hint="import or collect the run again")


_SEAL = "seal"  # last key of `run.json`: the SHA-256 of the file, indented, with an empty text in its place


def _no_run_error(directory: Place, error: Exception) -> UnusableInputError:
    return UnusableInputError(f"{directory} is not a run: {error}", hint="list runs with `tracekit runs`")


class NewerVersionError(UnusableInputError):
    """A run that a newer tracekit has stored."""


class _Version(msgspec.Struct):
    schema_version: int


def write(directory: Place, meta: RunMeta) -> None:
    """Write a run's metadata."""
    (directory / FILE_NAME).write_bytes(encode(meta))


def encode(meta: RunMeta) -> bytes:
    """Encode metadata: indented, with a digest that detects later changes."""
    content = msgspec.to_builtins(meta)
    return _encode_indented({**content, _SEAL: _digest(content)})


def is_as_sealed(data: bytes) -> bool | None:
    """Return whether the content of a `run.json` is unchanged; None without a digest, as in old versions.

    White space does not matter.
    """
    try:
        content = msgspec.json.decode(data, type=dict[str, Any])
    except _UNREADABLE:  # in a key that `decode` skips
        return False
    if _SEAL not in content:
        return None
    seal = content.pop(_SEAL)
    # Of the decoded content, so that tools which only reformat JSON do not break the seal.
    return bool(seal == _digest(content))


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(_encode_indented({**content, _SEAL: ""})).hexdigest()


def _encode_indented(content: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


ENVIRONMENT_FIELDS = ("python", "torch", "cuda", "hip", "cudnn", "driver", "cpu")
PRECISION = "float32_matmul_precision"
GPU_SETTINGS = ("matmul_tf32", "cudnn_tf32", "cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic")
"""Settings of torch that have an effect on GPUs only."""
CPU_FIELDS = {
    "cpu_cores": "cores",
    "cpu_affinity": "affinity",
    "cpu_limit": "cgroup_limit",
    "cpu_governor": "governor",
    "inter_op_threads": "inter_op",
}
"""Fields on the use of the CPU, with their names in the environment."""
PROCESS = "process"
"""Field with the number of a recorded process, if a program has several that are no ranks of one job."""
OF_PROGRAM = (PROCESS, "step_on")
"""Fields of runs of programs: which process it is, and the function whose calls are its steps."""
CHANGE = "change"
"""Field of a program in which `tracekit collect --change` made changes, with their names."""
PROCESS_NOT_RECORDED = "process_not_recorded"
"""Diagnostic on a process of the program that is not part of the run."""
PROFILER_FIELDS = ("record_shapes", "profile_memory", "with_stack")


def fingerprint(
    workload: Mapping[str, Any], environment: Mapping[str, Any], options: Mapping[str, Any], *, collector: str
) -> dict[str, Any]:
    """Return the fields that decide comparability; unknown ones are None.

    Args:
        workload: `workload` of `run.json`.
        environment: `environment` of `run.json`.
        options: Options of the collector.
        collector: Name of the collector.
    """
    from tracekit.workloads.options import WORKLOAD_FIELDS  # what reads runs does not need it

    used = environment.get("gpus", []) if workload.get("device") == "cuda" else []
    gpu: Mapping[str, Any] = used[0] if used else {}
    settings: Mapping[str, Any] = environment.get("settings") or {}
    on_gpu = settings if workload.get("device") == "cuda" else {}
    program = program_settings(environment)
    cpus: Mapping[str, Any] = environment.get(CPUS) or program.get("threads") or {}
    # Only where there are any, so that runs from before there were changes stay of one configuration.
    changes = {CHANGE: list(workload[CHANGE])} if workload.get(CHANGE) else {}
    return {
        "workload": workload.get("name"),
        **{name: workload.get(name) for name in WORKLOAD_FIELDS},
        **{name: environment.get(name) for name in ENVIRONMENT_FIELDS},
        "gpu": gpu.get("name"),
        **{name: gpu.get(name) for name in ("sm_count", "compute_capability", "power_limit_w", "ecc")},
        PRECISION: settings.get(PRECISION),
        **{name: on_gpu.get(name) for name in GPU_SETTINGS},
        **{name: cpus.get(source) for name, source in CPU_FIELDS.items()},
        "world_size": 1,
        "collector": collector,
        **{f"profiler_{name}": options.get(name) for name in PROFILER_FIELDS},
        **changes,
    }


MAX_LISTED = 8
"""Limit of diagnostics of one kind that are listed separately."""
HOW_TO_LIST = "`tracekit show RUN --format csv` lists each"
_SEPARATOR = ": "


def combine_diagnostics(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Combine diagnostics of the same level and code if there are more than `MAX_LISTED`.

    Args:
        diagnostics: Diagnostics of a run; messages start with the name of the trace, as in `a.json: cut`.
    """
    kinds: dict[tuple[str, str], list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        kinds.setdefault((diagnostic.level, diagnostic.code), []).append(diagnostic)
    shown = (kind if len(kind) <= MAX_LISTED else [_summarize(kind)] for kind in kinds.values())
    return [diagnostic for kind in shown for diagnostic in kind]


def _summarize(kind: Sequence[Diagnostic]) -> Diagnostic:
    first, last = kind[0], kind[-1]
    about, separator, what = first.message.partition(_SEPARATOR)
    if separator and all(other.message.partition(_SEPARATOR)[2] == what for other in kind):
        until = last.message.partition(_SEPARATOR)[0]
        message = f"{len(kind):,} traces, {about} to {until}{_SEPARATOR}{what}"
    else:
        message = f"{first.message}; and {len(kind) - 1:,} more of this kind: {HOW_TO_LIST}"
    return replace(first, message=message)
