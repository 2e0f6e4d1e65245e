"""Find nsys, build commands from the options that its version supports, and explain its errors.

Supported options are read from its help. A setting that a version does not support is replaced by an
alternative, or dropped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

from tracekit.errors import CollectionError
from tracekit.recording.logs import error_line as find_error_line
from tracekit.runs.toolchain import find_nsys

from ..children import child

QUERY_SECONDS = 60.0
_VERSION = re.compile(r"version\s+v?(\d+(?:\.\d+)+)")
_OPTION = re.compile(r"^\s*(?:-\w,?\s+)?--([a-z][a-z0-9-]*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Nsys:
    """An installation of nsys."""

    path: str  # path of the program
    version: str  # version, such as `2023.4.4.54`
    # help text of each option of `nsys profile`, by name without dashes
    profile: Mapping[str, str] = field(default_factory=dict)
    export: Mapping[str, str] = field(default_factory=dict)  # help text of each option of `nsys export`


def find() -> Nsys:
    """Find nsys, and query its version and options.

    Raises:
        CollectionError: It is not installed or does not respond.
    """
    path = find_nsys()
    if path is None:
        message = "nsys not found ($NSYS_HOME/bin, PATH, default install folders)"
        raise CollectionError(message, hint="install NVIDIA Nsight Systems, or use --collector torch")
    output = _query(path, "--version")
    version = _VERSION.search(output)
    if version is None:
        hint = "reinstall NVIDIA Nsight Systems, or set $NSYS_HOME to another installation"
        raise CollectionError(f"{path} is not nsys: --version printed {find_error_line(output)!r}", hint=hint)
    return Nsys(
        path=path,
        version=version[1],
        profile=_help_by_option(_query(path, "profile", "--help")),
        export=_help_by_option(_query(path, "export", "--help")),
    )


def _help_by_option(text: str) -> dict[str, str]:
    """Return the help text of each option that a help page describes."""
    starts = [*_OPTION.finditer(text)]
    ends = [*(match.start() for match in starts[1:]), len(text)]
    return {match[1]: text[match.start() : end] for match, end in zip(starts, ends, strict=True)}


def _query(path: str, *words: str) -> str:
    """Return the output of nsys for a query about itself."""
    with TemporaryFile() as output:
        with child(
            [path, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as process:
            try:
                process.wait(QUERY_SECONDS)
            except subprocess.TimeoutExpired as error:
                message = f"`{path} {' '.join(words)}` did not respond within {QUERY_SECONDS:.0f} s"
                hint = "reinstall NVIDIA Nsight Systems, or set $NSYS_HOME to another installation"
                raise CollectionError(message, hint=hint) from error
        output.seek(0)
        return output.read().decode(errors="replace")


TRACES = ("cuda", "nvtx", "osrt", "cudnn", "cublas")
HOST_TRACES = ("nvtx", "osrt")


@dataclass(frozen=True)
class Setting:
    """A setting of a recording."""

    option: str  # the option that makes it
    loss: str = ""  # consequence if a version does not support it; empty if there is none
    former: tuple[str, ...] = ()  # options that make it in older versions


WINDOW = (
    Setting("--capture-range=cudaProfilerApi", "the recording cannot be limited to its steps"),
    # the default ends the program at the end of the range
    Setting(
        "--capture-range-end=stop",
        "the program may be ended with the recording",
        former=("--stop-on-range-end=true", "--kill=none"),
    ),
)
ALWAYS = (
    Setting("--cuda-graph-trace=node"),  # versions without it always record the kernels of graphs
    Setting("--cuda-event-trace=false"),
    # by default nsys waits for processes that the program leaves running, such as a logging service
    Setting("--wait=primary"),
    # CPU sampling needs permissions
    Setting("--sample=none"),
    Setting("--cpuctxsw=none"),
    Setting("--stats=false"),
    Setting("--discard-environment=true", "a kept report contains the environment variables"),
    Setting("--force-overwrite=true"),
)
EXPORT = (Setting("--lazy=false"), Setting("--force-overwrite=true"))


def profile_command(nsys: Nsys, output: Path, *, device: str) -> list[str]:
    """Return the command that records a program, which follows it directly.

    There is no `--` before the program, since versions before 2023 would take it for the program.

    Args:
        nsys: Installation of nsys.
        output: Path of the report without its suffix.
        device: `cuda` records between `cudaProfilerStart` and `cudaProfilerStop`, `cpu` the entire program.

    Raises:
        CollectionError: This version cannot be limited to a range.
    """
    if device != "cpu" and "capture-range" not in nsys.profile:
        message = f"nsys {nsys.version} ({nsys.path}) has no --capture-range"
        raise CollectionError(message, hint="install a newer Nsight Systems, or set $NSYS_HOME to one")
    settings = ALWAYS if device == "cpu" else (*WINDOW, *ALWAYS)
    wanted = HOST_TRACES if device == "cpu" else TRACES
    quoted = set(re.findall(r"'([a-z0-9-]+)'", nsys.profile.get("trace", "")))
    traces = ",".join([trace for trace in wanted if trace in quoted] or wanted)  # all if its help quotes none
    path = str(output).replace("%", "%%")  # nsys expands % to numbers and variables
    return [nsys.path, "profile", f"--trace={traces}", *_options(settings, nsys.profile), f"--output={path}"]


def export_command(nsys: Nsys, report: Path, output: Path) -> list[str]:
    """Return the command that exports a report to SQLite.

    Args:
        nsys: The tool.
        report: The report.
        output: The new SQLite file.
    """
    options = _options(EXPORT, nsys.export)
    return [nsys.path, "export", "--type=sqlite", *options, f"--output={output}", str(report)]


def unsupported_settings(nsys: Nsys) -> list[str]:
    """Return the consequences of settings that this version does not support."""
    return [
        setting.loss
        for setting in (*WINDOW, *ALWAYS)
        if setting.loss and not _supported_options(setting, nsys.profile)
    ]


def _options(settings: Iterable[Setting], help_texts: Mapping[str, str]) -> list[str]:
    return [option for setting in settings for option in _supported_options(setting, help_texts)]


def _supported_options(setting: Setting, help_texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the option, or else the former ones, if all have a help text; or nothing."""
    for options in ((setting.option,), setting.former):
        if all(option.removeprefix("--").partition("=")[0] in help_texts for option in options):
            return options
    return ()


_SAVED_REPORTS = ".reports"  # folder of the store for reports that could not be exported
_PERMISSION = re.compile(r"ERR_NVGPUCTRPERM|INSUFFICIENT_PRIVILEGES|[Ii]nsufficient privilege|perf_event")
_RANGE_BEGAN = "Capture range started"  # output of nsys when the program calls cudaProfilerStart
_ERROR = re.compile(
    r"(?i)error|fail|cannot|could not|unable|denied|unrecogni[sz]ed|invalid|illegal|ERR_|no reports"
)
_PATH = re.compile(r"\S*$|/.*\.(nsys-rep|qdrep|qdstrm|sqlite)$")
"""A line that is only a path, which may contain any word."""
_PROGRESS_BAR = re.compile(r"\[[^\]]*\]\s*|\s*\d+%\s*")


def recording_error(log: str, code: int, *, by_range: bool = False) -> CollectionError:
    """Explain why nsys recorded nothing, from its output and exit code.

    Args:
        log: Output of nsys and the program.
        code: Exit code of nsys.
        by_range: Whether the program called cudaProfilerStart, with which the recording begins.
    """
    if denied := [line.strip() for line in log.splitlines() if _PERMISSION.search(line)]:
        return CollectionError(
            f"nsys lacks the permission to record: {denied[0]}",
            hint="run as root, or set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia kernel module and "
            "kernel.perf_event_paranoid to 2 or less; see `tracekit doctor`",
        )
    reason = error_line(log)
    if by_range and _RANGE_BEGAN not in log:
        return CollectionError(
            f"nsys wrote no report (exit code {code}): it did not notice cudaProfilerStart, with which the "
            f"recording begins ({reason})",
            hint="install an Nsight Systems that supports this GPU driver, or use --collector torch",
        )
    message = f"nsys wrote no report (exit code {code}): {reason}"
    return CollectionError(message, hint="see `tracekit doctor`, or use --collector torch")


def missing_report_error(log: str, code: int, *, by_range: bool, device: str) -> CollectionError:
    """Return the error for a user's program that completed its window.

    Args:
        log: Output of nsys.
        code: Exit code of the program.
        by_range: Whether the recording begins with cudaProfilerStart.
        device: Device that the program used.
    """
    if by_range and device == "cpu":
        message = "nsys wrote no report: it records the GPU, and the program used none"
        hint = "hide the GPU with CUDA_VISIBLE_DEVICES= to record the CPU only, or use --collector torch"
        return CollectionError(message, hint=hint)
    return recording_error(log, code, by_range=by_range)


def unprocessed_error(raw: Path) -> CollectionError:
    """Return the error for data that nsys did not turn into a report, after moving them out of the draft."""
    message = f"nsys recorded, but could not process its data; they are saved as {_save(raw)}"
    hint = "install all of Nsight Systems, with its host folder, and open them with nsys-ui"
    return CollectionError(message, hint=hint)


def export_error(nsys: Nsys, report: Path, code: int, log: str) -> CollectionError:
    """Return the error for a report that could not be exported, after moving it out of the draft.

    Args:
        nsys: Installation of nsys.
        report: The report.
        code: Exit code of `nsys export`.
        log: Its output.
    """
    saved = _save(report)
    ended = f"exit code {code}" if code else "no readable output"
    return CollectionError(
        f"nsys {nsys.version} could not export its report ({ended}): {error_line(log)}; "
        f"it is saved as {saved}",
        hint=f"export it with another version (nsys export --type=sqlite {saved}), then `tracekit import` it",
    )


def _save(file: Path) -> Path:
    """Move a file from the draft of a run to the folder of saved reports."""
    folder = file.parent.parent / _SAVED_REPORTS
    folder.mkdir(exist_ok=True)
    saved = folder / f"{file.parent.name.lstrip('.')}{file.suffix}"
    shutil.move(file, saved)
    return saved


def error_line(log: str) -> str:
    r"""Return the line of nsys' output that most likely has the error.

    Example:
        >>> error_line("Collecting data...\nERR_NVGPUCTRPERM: no access\n[1/1] [====100%] run.nsys-rep\n")
        'ERR_NVGPUCTRPERM: no access'
        >>> error_line("RuntimeError: no kernel\nGenerated:\n    /home/my failures/run.nsys-rep\n")
        'RuntimeError: no kernel'
    """
    lines = [line.strip() for line in log.replace("\r", "\n").splitlines()]
    errors = [line for line in lines if not _PATH.match(line) and _ERROR.search(line)]
    if errors:
        return errors[-1]
    return find_error_line("\n".join(_PROGRESS_BAR.sub("", line) for line in lines))
