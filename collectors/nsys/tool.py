"""The nsys of this machine: its version, and the options that it says it takes.

What a version takes is read from its own help: a wish that it cannot meet in one way is put in another, or
dropped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from tracekit.errors import CollectionError
from tracekit.runs.toolchain import find_nsys

from ..children import child, last_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


ANSWER_SECONDS = 60.0
_VERSION = re.compile(r"version\s+v?(\d+(?:\.\d+)+)")
_OPTION = re.compile(r"^\s*(?:-\w,?\s+)?--([a-z][a-z0-9-]*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Nsys:
    """One nsys.

    Attributes:
        path: Its program.
        version: Such as `2023.4.4.54`.
        profile: What `nsys profile --help` says of each option, by its name without dashes.
        export: The same of `nsys export --help`.
    """

    path: str
    version: str
    profile: Mapping[str, str] = field(default_factory=dict)
    export: Mapping[str, str] = field(default_factory=dict)


def located() -> Nsys:
    """The nsys that is used here, asked what it is and what it takes.

    Raises:
        CollectionError: There is none, or it does not answer.
    """
    path = find_nsys()
    if path is None:
        raise CollectionError(
            "nsys not found ($NSYS_HOME/bin, PATH, default install folders)",
            hint="install NVIDIA Nsight Systems, or use --collector torch",
        )
    said = _said(path, "--version")
    version = _VERSION.search(said)
    if version is None:
        raise CollectionError(
            f"{path} is not nsys: --version printed {last_line(said)!r}",
            hint="reinstall NVIDIA Nsight Systems, or set $NSYS_HOME to another installation",
        )
    return Nsys(
        path=path,
        version=version[1],
        profile=options_of(_said(path, "profile", "--help")),
        export=options_of(_said(path, "export", "--help")),
    )


def options_of(text: str) -> dict[str, str]:
    r"""The options a help text explains, each with its explanation; mentions elsewhere do not count.

    Example:
        >>> options_of("  -t, --trace=\n\n    Possible: 'cuda'. See --help.\n  --wait=\n    all\n").keys()
        dict_keys(['trace', 'wait'])
    """
    starts = [*_OPTION.finditer(text)]
    ends = [*(match.start() for match in starts[1:]), len(text)]
    return {match[1]: text[match.start() : end] for match, end in zip(starts, ends, strict=True)}


def _said(path: str, *words: str) -> str:
    """What nsys answers to a question about itself."""
    with TemporaryFile() as output:
        question = child([path, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        with question as process:
            try:
                process.wait(ANSWER_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise CollectionError(
                    f"`{path} {' '.join(words)}` did not respond within {ANSWER_SECONDS:.0f} s",
                    hint="reinstall NVIDIA Nsight Systems, or set $NSYS_HOME to another installation",
                ) from error
        output.seek(0)
        return output.read().decode(errors="replace")


TRACES = ("cuda", "nvtx", "osrt", "cudnn", "cublas")
HOST_TRACES = ("nvtx", "osrt")


@dataclass(frozen=True)
class Wish:
    """One thing wanted of a recording.

    Attributes:
        ways: Ways to say it, the current one first; each is one or more options.
        without: What is lost where it cannot be said; empty when nothing is.
    """

    ways: tuple[tuple[str, ...], ...]
    without: str = ""


WINDOW = (
    Wish((("--capture-range=cudaProfilerApi",),), "the recording cannot be limited to its steps"),
    # the default ends the program together with the range
    Wish(
        (("--capture-range-end=stop",), ("--stop-on-range-end=true", "--kill=none")),
        "the program may be ended with the recording",
    ),
)
ALWAYS = (
    Wish((("--cuda-graph-trace=node",),), "kernels inside CUDA graphs are not recorded"),
    Wish((("--cuda-event-trace=false",),)),
    # without samples of the CPU no permission is needed
    Wish((("--sample=none",),)),
    Wish((("--cpuctxsw=none",),)),
    Wish((("--stats=false",),)),
    Wish((("--discard-environment=true",),), "a kept report holds the environment variables"),
    Wish((("--force-overwrite=true",),)),
)
EXPORT = (Wish((("--lazy=false",),)), Wish((("--force-overwrite=true",),)))


def recording(nsys: Nsys, output: Path, *, device: str) -> list[str]:
    """The words before the program: nsys, `profile` and its options.

    A program follows without `--`, which versions before 2023 take for the program itself.

    Args:
        nsys: Who is told.
        output: The report, without its suffix.
        device: `cuda` records between `cudaProfilerStart` and `cudaProfilerStop`; `cpu`, where nobody calls
            them, the whole program.

    Raises:
        CollectionError: This nsys cannot be limited to a range.
    """
    if device != "cpu" and "capture-range" not in nsys.profile:
        raise CollectionError(
            f"nsys {nsys.version} ({nsys.path}) has no --capture-range",
            hint="install a newer Nsight Systems, or set $NSYS_HOME to one",
        )
    wishes = ALWAYS if device == "cpu" else (*WINDOW, *ALWAYS)
    traces = _traces(nsys.profile, HOST_TRACES if device == "cpu" else TRACES)
    place = str(output).replace("%", "%%")  # else nsys puts in numbers and variables
    return [nsys.path, "profile", f"--trace={traces}", *_met(wishes, nsys.profile), f"--output={place}"]


def exporting(nsys: Nsys, report: Path, output: Path) -> list[str]:
    """The command that turns a report into SQLite."""
    options = _met(EXPORT, nsys.export)
    return [nsys.path, "export", "--type=sqlite", *options, f"--output={output}", str(report)]


def lost_options(nsys: Nsys) -> list[str]:
    """What this nsys cannot do of what a recording wants.

    Example:
        >>> from tracekit.collectors.nsys.tool import Nsys
        >>> lost_options(Nsys(path="nsys", version="2021.1", profile={"capture-range": ""}))[0]
        'the program may be ended with the recording'
    """
    return [wish.without for wish in (*WINDOW, *ALWAYS) if wish.without and not _way(wish, nsys.profile)]


def _met(wishes: Iterable[Wish], known: Mapping[str, str]) -> list[str]:
    return [option for wish in wishes for option in _way(wish, known)]


def _way(wish: Wish, known: Mapping[str, str]) -> tuple[str, ...]:
    """The first way whose options are all known."""
    fitting = (way for way in wish.ways if all(_name(option) in known for option in way))
    return next(fitting, ())


def _name(option: str) -> str:
    return option.removeprefix("--").partition("=")[0]


def _traces(known: Mapping[str, str], wanted: tuple[str, ...]) -> str:
    """The wanted values of `--trace` that its explanation names; all where it names none of them."""
    words = set(re.findall(r"[a-z][a-z0-9-]*", known.get("trace", "")))
    return ",".join([one for one in wanted if one in words] or wanted)


KEPT = ".reports"
"""The folder of the store where a report goes that could not be exported."""
_FORBIDDEN = re.compile(r"ERR_NVGPUCTRPERM|INSUFFICIENT_PRIVILEGES|perf_event|[Pp]ermission denied")
_TELLING = re.compile(
    r"(?i)error|fail|cannot|could not|unable|denied|unrecogni[sz]ed|invalid|illegal|ERR_|no reports"
)
_PATH = re.compile(r"\S*$|/.*\.(nsys-rep|qdrep|qdstrm|sqlite)$")
"""A line that is a path alone, which may hold any word."""
_BAR = re.compile(r"\[[^\]]*\]\s*|\s*\d+%\s*")


def not_recorded(log: str, code: int) -> CollectionError:
    """Nothing came of a recording for a reason of nsys' own.

    Args:
        log: What it printed.
        code: Its exit code.
    """
    said = telling(log)
    if _FORBIDDEN.search(log):
        return CollectionError(
            f"nsys lacks the permission to record: {said}",
            hint="run as root, or set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia kernel module and "
            "kernel.perf_event_paranoid to 2 or less; see `tracekit doctor`",
        )
    return CollectionError(
        f"nsys wrote no report (exit code {code}): {said}",
        hint="see `tracekit doctor`, or use --collector torch",
    )


def unreported(code: int) -> CollectionError:
    """The user's program was recorded, as far as it could tell, and what nsys printed is on the terminal."""
    return CollectionError(
        f"the program finished its profiled steps, but nsys wrote no report (exit code {code})",
        hint="check its output and `tracekit doctor`, or use --collector torch",
    )


def empty(what: str, reason: str) -> CollectionError:
    """A report holds nothing of what was to be recorded; `reason` is nsys' own word for it."""
    because = f": nsys says {reason!r}" if reason else ""
    return CollectionError(
        f"nsys recorded no {what}{because}",
        hint="see `tracekit doctor` for driver and permissions, or use --collector torch",
    )


def not_exported(nsys: Nsys, report: Path, code: int, log: str) -> CollectionError:
    """A report could not be turned into SQLite; it is moved to where it stays."""
    kept = keep(report)
    ended = f"exit code {code}" if code else "it made no readable file"
    return CollectionError(
        f"nsys {nsys.version} could not export its report ({ended}): {telling(log)}; it is saved as {kept}",
        hint=f"export it with another version (nsys export --type=sqlite {kept}), then `tracekit import` it",
    )


def keep(report: Path) -> Path:
    """Move a report out of the recording's folder, which vanishes, to one of the store that stays."""
    folder = report.parent.parent / KEPT
    folder.mkdir(exist_ok=True)
    target = folder / f"{report.parent.name.lstrip('.')}{report.suffix}"
    shutil.move(report, target)
    return target


def telling(log: str) -> str:
    r"""The line of what nsys printed that says what went wrong.

    Example:
        >>> telling("Collecting data...\nERR_NVGPUCTRPERM: no access\n[1/1] [====100%] run.nsys-rep\n")
        'ERR_NVGPUCTRPERM: no access'
        >>> telling("RuntimeError: no kernel\nGenerated:\n    /home/my failures/run.nsys-rep\n")
        'RuntimeError: no kernel'
    """
    said = [line.strip() for line in log.replace("\r", "\n").splitlines()]
    lines = [line for line in said if not _PATH.match(line) and _TELLING.search(line)]
    return lines[-1] if lines else last_line("\n".join(_BAR.sub("", line) for line in said))
