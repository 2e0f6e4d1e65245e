"""The nsys of this machine: its version, and the options that it says it takes."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from tracekit.errors import CollectionError
from tracekit.nsight import find_nsys

from ..children import child, last_line

if TYPE_CHECKING:
    from collections.abc import Mapping

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
