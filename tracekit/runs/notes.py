"""Name, tags, color and note of a run, in a file beside its tables, which they do not change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tracekit import storage
from tracekit.errors import UnusableInputError, clean
from tracekit.runs.run import Run

FILE_NAME = "notes.json"
MAX_TAGS, MAX_TAG_CHARS, MAX_NOTE_CHARS = 20, 40, 4_000
"""Limits of the number of tags, of a tag, and of a note, in characters."""
COLORS = ("blue", "orange", "green", "vermilion", "pink", "sky", "violet", "grey")
"""Colors that a run can have, in the order of the palette of charts."""
_MAX_BYTES = 256 << 10


class Notes(msgspec.Struct, frozen=True):
    """What a user wrote about a run."""

    tags: tuple[str, ...] = ()  # short words by which runs are found
    note: str = ""  # free text
    name: str = ""  # name shown in place of the label; empty for none
    color: str = ""  # color that marks the run in lists and charts, one of `COLORS`; empty for one by its id


def read(run: Run) -> Notes:
    """Return the notes of a run for a list; empty ones if it has none or they cannot be read."""
    try:
        return read_strictly(run)
    except UnusableInputError:
        return Notes()


def read_strictly(run: Run) -> Notes:
    """Return the notes of a run; empty ones if it has none.

    Raises:
        UnusableInputError: They cannot be read.
    """
    try:
        return msgspec.json.decode(storage.read_own(run.path / FILE_NAME, _MAX_BYTES), type=Notes)
    except FileNotFoundError:
        return Notes()
    except (OSError, ValueError, RecursionError) as error:
        reason = storage.reason(error) if isinstance(error, OSError) else str(error)
        message = f"the notes of {run.path.name} cannot be read: {reason}"
        raise UnusableInputError(message, hint=f"repair or delete {FILE_NAME} in its folder") from error


def write(run: Run, *, tags: Sequence[str], note: str, name: str, color: str = "") -> Notes:
    """Replace the notes of a run; without any, delete the file.

    Args:
        run: The run.
        tags: Short words by which runs are found.
        note: Free text.
        name: Name shown in place of the label; empty for none.
        color: One of `COLORS`; empty for one by the run's id.

    Raises:
        UnusableInputError: There are too many tags, a text is too long, or the color is unknown; the present
            notes cannot be read, which would be lost; or the folder cannot be written.

    Example:
        >>> from tracekit.runs.notes import write
        >>> write(run, tags=["baseline"], note="before the change of the loader", name="")  # doctest: +SKIP
    """
    unique = tuple(dict.fromkeys(clean(tag.strip()) for tag in tags if tag.strip()))
    notes = Notes(unique, note.strip(), clean(name.strip()), color)
    if len(unique) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in (*unique, notes.name)):
        message = f"at most {MAX_TAGS} tags; tags and names have at most {MAX_TAG_CHARS} characters"
        raise UnusableInputError(message)
    if len(notes.note) > MAX_NOTE_CHARS:
        raise UnusableInputError(f"a note has at most {MAX_NOTE_CHARS:,} characters")
    if color and color not in COLORS:
        raise UnusableInputError("unknown color", hint=f"one of {', '.join(COLORS)}")
    read_strictly(run)
    try:
        if notes == Notes():
            (run.path / FILE_NAME).unlink(missing_ok=True)
        else:
            with storage.put(run.path / FILE_NAME) as file:
                file.write_bytes(msgspec.json.encode(notes))
    except OSError as error:
        message = f"the notes of {run.path.name} cannot be written: {storage.reason(error)}"
        raise UnusableInputError(message, hint="check the permissions of the store") from error
    return notes
