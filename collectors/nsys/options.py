"""The options of a recording, in the words of the nsys that is here.

What a version takes is read from its own help: a wish that it cannot meet in one way is put in another, or
dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.errors import CollectionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .tool import Nsys

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


def lost(nsys: Nsys) -> list[str]:
    """What this nsys cannot do of what a recording wants.

    Example:
        >>> from tracekit.collectors.nsys.tool import Nsys
        >>> lost(Nsys(path="nsys", version="2021.1", profile={"capture-range": ""}))[0]
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
