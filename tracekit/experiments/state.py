"""State of measurements that can be interrupted: `ab`, `bisect` and sweeps resume from files in the store.

A state file holds one frozen dataclass as JSON, or one per line, to which records are appended. Its name is a
hash of the question that it answers: all that the values depend on, the machine included. So a question that
changed finds no state and starts again, and no secret of a command or of the environment is stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from tracekit.errors import UnusableInputError
from tracekit.runs import environment, revisions
from tracekit.runs.store import Store
from tracekit.storage import locks
from tracekit.storage.atomic import write_atomically

T = TypeVar("T")
_KEY_DIGITS = 24
_MAX_HASHED_BYTES = 1 << 20
_SHELL_VARIABLES = frozenset(
    ("_", "COLUMNS", "COLORTERM", "DISPLAY", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "WINDOWID", "STY")
)
_SESSION_PREFIXES = ("SSH_", "TMUX", "TERM_", "XDG_", "DBUS_", "VSCODE_", "LESS", "GPG_")


def variables_of_question() -> dict[str, str]:
    """Return the environment without the variables of terminal and shell: any other can affect a program."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _SHELL_VARIABLES and not name.startswith(_SESSION_PREFIXES)
    }


def code_of(folder: Path, command: Sequence[str] = ()) -> list[object]:
    """Identify the code of a folder: its commit, uncommitted changes, and files that git does not track yet.

    Args:
        folder: Folder in which a program is run.
        command: The program; files that it names count also where git ignores them.
    """
    root = revisions.root(folder) or folder
    listed = revisions.output("ls-files", "--others", "--exclude-standard", "-z", cwd=root)
    untracked = [*folder.glob("*.py")] if listed is None else map(os.fsdecode, listed.split(b"\0"))
    files = {root / name for name in untracked if name} | {folder / word for word in command}
    return [
        revisions.state(folder),
        {str(file): _identify(file) for file in sorted(files) if file.is_file()},
    ]


def _identify(file: Path) -> object:
    """Return the hash of a source or a configuration; size and time of larger files, such as data."""
    status = file.stat()
    if status.st_size > _MAX_HASHED_BYTES:
        return status.st_size, status.st_mtime_ns
    return hashlib.sha256(file.read_bytes()).hexdigest()


def question_key(question: object) -> str:
    """Return a hash of a question, which names its state; values that are not JSON count by their text.

    Example:
        >>> question_key({"command": ["python", "train.py"]})
        '12dd627fdc849ca6babc9721'
    """
    text = json.dumps(question, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


@dataclass(frozen=True)
class StateFile(Generic[T]):
    """A file of one dataclass, or of one per line; it need not exist."""

    path: Path
    content: type[T]

    @classmethod
    def of_call(cls, folder: Path, content: type[T], /, *, restart: bool, **question: object) -> StateFile[T]:
        """Return the file of what an interrupted call measured on this machine.

        Args:
            folder: Folder of such files.
            content: Dataclass of the file.
            restart: Delete the file, so that the call starts again.
            question: All that the values depend on, beside the machine and the environment.
        """
        question |= {"machine": environment.identity(), "variables": variables_of_question()}
        file = cls(folder / f"{question_key(question)}.json", content)
        if restart:
            file.delete()
        return file

    def load(self) -> T:
        """Return the stored dataclass.

        Raises:
            OSError: The file cannot be read.
            DecodeError: It holds something else, such as the state of another version.
        """
        return msgspec.json.decode(self.path.read_bytes(), type=self.content)

    def read(self) -> T | None:
        """Return the stored dataclass; None if the file is missing or damaged."""
        with suppress(OSError, msgspec.DecodeError):
            return self.load()
        return None

    def write(self, value: T) -> None:
        """Replace the file atomically; the content survives a crash of the machine."""
        with write_atomically(self.path, durable=True) as file:
            file.write_bytes(msgspec.json.encode(value))

    def records(self) -> list[T]:
        """Return the dataclasses of all lines, oldest first; a truncated line is skipped."""
        records = []
        for line in self.path.read_bytes().splitlines() if self.path.is_file() else []:
            with suppress(msgspec.DecodeError):
                records.append(msgspec.json.decode(line, type=self.content))
        return records

    def append(self, record: T) -> None:
        """Append a line."""
        with self.path.open("a+b") as stream:
            stream.seek(max(0, stream.seek(0, 2) - 1))
            # A process that was killed may have left half a line: the record starts its own.
            truncated = stream.read() not in {b"", b"\n"}
            stream.write(b"\n" * truncated + msgspec.json.encode(record) + b"\n")

    def delete(self) -> None:
        """Delete the file, if it exists."""
        self.path.unlink(missing_ok=True)


def lock_measuring(store: Store, folder: str, other: str) -> AbstractContextManager[None]:
    """Lock the measurements in a folder of a store: another call at the same time would disturb this one."""
    busy = f"{other} is measuring in {store.path}"
    return exclusive_lock(store.folder(folder) / "lock", busy, hint="wait until it is finished")


@contextmanager
def exclusive_lock(path: Path, what: str, *, hint: str) -> Iterator[None]:
    """Hold a lock with a fixed name, whose file is kept.

    Args:
        path: The lock file.
        what: Message if another process holds the lock.
        hint: What to do then.

    Raises:
        UnusableInputError: Another process holds it.
    """
    with locks.hold(path, blocking=False) as held:
        if not held:
            raise UnusableInputError(what, hint=hint)
        yield
