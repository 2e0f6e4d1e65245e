"""What went wrong under nsys, in one line that ends with the next step."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from tracekit.errors import CollectionError

from ..children import last_line

if TYPE_CHECKING:
    from pathlib import Path

    from .tool import Nsys

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
