"""Pack the evidence into one archive, without secrets and without names of the machine.

Removed are secrets and home folders (`tracekit.runs.redaction`), the names of the host and the user, folders,
serial numbers, UUIDs, and addresses. Only text is packed: traces are unpacked, redacted and packed again, and
reports of Nsight Systems, which contain environment variables, are left out.
"""

from __future__ import annotations

import getpass
import gzip
import io
import re
import socket
import sys
import sysconfig
import tarfile
import tempfile
import zlib
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.runs import redaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TEXT, PACKED = (".json", ".log", ".txt"), ".json.gz"
"""Endings of the files that are packed."""
_SMI = ("nvidia-smi", "rocm-smi")
_UUID = re.compile(
    r"(?i)\b(?:GPU|MIG)-[0-9a-f]{16}\b|\b(?:GPU-|MIG-)*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
_LABELED = re.compile(
    r"(?im)^(.*\b(?:serial(?: number)?|uuid|unique id|gpu pdi|host id|guid)\b[^:=\n]*[:=][ \t]*)(\S.*)$"
)
"""Lines of nvidia-smi and rocm-smi."""
_PROCESS = re.compile(r"(?m)^(\s+Name\s*:\s*)(\S.*)$")
"""Commands of other processes, in the output of nvidia-smi."""
_ADDRESS = re.compile(r"\b(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}(?=[:<]\d)")
"""An address with a port, as in the log of NCCL; without one it may be a version."""
_PATH = re.compile(r"(?<![\w./<>-])~?/(?:[\w.+@~-]+/)+(?=[\w.+@~-]|$)")
_COMMON = frozenset({"root", "user", "nobody", "admin", "ubuntu", "cuda", "torch", "python", "nvidia", "amd"})
"""Names of users that name nobody, and words of every log."""
HIDDEN, USER, SOMEWHERE = "***", "USER", "<path>/"


class Redactor:
    """Redacts texts for the archive.

    Args:
        hosts: Names of the machine; None for those of this one.
        users: Names of its user; None for those of this process.
        folders: Folders that are named instead of shown, with their names.

    Example:
        >>> redactor = Redactor(hosts=["gpu-box"], users=["ann"], folders={"/data/kit": "out"})
        >>> redactor("ann@gpu-box ran /data/kit/loop.py with /opt/x/y.so on GPU-8-4")
        'USER@HOST ran <out>/loop.py with <path>/y.so on GPU-8-4'
    """

    def __init__(
        self,
        *,
        hosts: Iterable[str] | None = None,
        users: Iterable[str] | None = None,
        folders: dict[str, str] | None = None,
    ) -> None:
        self._hosts = set(_hosts() if hosts is None else hosts)
        self._users = set(_users() if users is None else users)
        self._folders = _folders() | (folders or {})

    def __call__(self, text: str) -> str:
        """Redact a text."""
        for pattern, name in self._ordered:
            text = pattern.sub(name, text)
        text = redaction.redact_message(text)
        text = _PATH.sub(SOMEWHERE, text)
        text = _UUID.sub(HIDDEN, text)
        text = _ADDRESS.sub(HIDDEN, text)
        for pattern, name in self._words:
            text = pattern.sub(name, text)
        return text

    @cached_property
    def _ordered(self) -> list[tuple[re.Pattern[str], str]]:
        known = {folder.rstrip("/"): name for folder, name in self._folders.items()}
        longest = sorted((one for one in known if len(Path(one).parts) > 1), key=len, reverse=True)
        return [
            (re.compile(rf"(?<![\w./-]){re.escape(one)}(?![\w.-])"), f"<{known[one]}>") for one in longest
        ]

    @cached_property
    def _words(self) -> list[tuple[re.Pattern[str], str]]:
        named = {**dict.fromkeys(self._users, USER), **dict.fromkeys(self._hosts, redaction.HOST)}
        longest = sorted((one for one in named if _names_somebody(one)), key=len, reverse=True)
        return [
            (re.compile(rf"(?i)(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])"), named[one])
            for one in longest
        ]


def _names_somebody(name: str) -> bool:
    return len(name) > 1 and name.lower() not in _COMMON | {"localhost"}


def _hosts() -> Iterator[str]:
    full = socket.gethostname()
    yield from (full, full.partition(".")[0])


def _users() -> Iterator[str]:
    with suppress(OSError, KeyError, ImportError):
        yield getpass.getuser()
    yield Path.home().name


def _folders() -> dict[str, str]:
    """Return folders of this process by what they are."""
    paths = dict.fromkeys((sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()), "python")
    root = Path(__file__).resolve().parents[2]
    return {**paths, tempfile.gettempdir(): "tmp", str(Path.cwd()): "cwd", str(root): "tracekit"}


def redact_smi(text: str) -> str:
    r"""Remove serial numbers, identifiers and commands of processes from what nvidia-smi and rocm-smi print.

    Example:
        >>> redact_smi("    Serial Number : 7\n    Process ID : 7\n        Name : /opt/secret/train\n")
        '    Serial Number : ***\n    Process ID : 7\n        Name : ***\n'
    """
    return _PROCESS.sub(rf"\1{HIDDEN}", _LABELED.sub(rf"\1{HIDDEN}", text))


def pack(archive: Path, folder: Path, redact: Redactor) -> list[str]:
    """Pack the texts below a folder, redacted; returns their names in the archive.

    Args:
        archive: The archive to write; outside of the folder.
        folder: Folder with the evidence.
        redact: Redacts contents and names.
    """
    top = archive.name.partition(".")[0]
    names = []
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(folder.rglob("*")):
            content = _content(path, redact)
            if content is not None:
                name = redact(f"{top}/{path.relative_to(folder).as_posix()}")
                entry = tarfile.TarInfo(name)  # without owner, group and time
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
                names.append(name)
    return names


def _content(path: Path, redact: Redactor) -> bytes | None:
    """Return the redacted content of a file, None if it is not packed."""
    if not path.is_file() or path.is_symlink():
        return None
    if path.name.endswith(PACKED):
        try:
            text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        except (OSError, EOFError, zlib.error):  # written by a process that was stopped
            return None
        return gzip.compress(redact(text).encode(), 6, mtime=0)
    if not path.name.endswith(TEXT):
        return None
    text = path.read_text("utf-8", "replace")
    return redact(redact_smi(text) if path.name.startswith(_SMI) else text).encode()
