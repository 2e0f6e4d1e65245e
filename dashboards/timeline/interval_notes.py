"""Notes and flags on the timeline: one JSON file per note, in `notes` of the run's folder.

They are no part of the run: its tables, `run.json` and results do not depend on them, and `rm` deletes them
with the run. A file per note needs no lock between processes, on object storage too.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from tracekit import storage
from tracekit.errors import RunNotFoundError, UnusableInputError
from tracekit.runs.run import Run
from tracekit.runs.store import Store, timestamp

from ..site import parse_row

FOLDER = "notes"
MAX_NOTES = 500
"""Maximum notes of a run."""
_MAX_BYTES = 64 << 10
_ID = re.compile(r"[0-9a-f]{12}")
_Ns = Annotated[int, msgspec.Meta(gt=-(10**18), lt=10**18)]


class Note(msgspec.Struct, forbid_unknown_fields=True):
    """A note on a range of time, or on an interval; a flag if it has no text."""

    from_ns: _Ns  # start of the range, relative to the run's t0
    to_ns: _Ns  # end of the range
    row: str = ""  # the interval, such as `device_intervals:7`; empty for none
    text: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    id: str = ""  # name of its file, without the ending
    written_at: str = ""  # when it was last written: UTC, ISO 8601


def read_notes(run: Run) -> list[Note]:
    """Return the notes of a run by start; files that are no notes are skipped."""
    notes = []
    for path in storage.inside(run.path / FOLDER, "*.json") if not _is_linked(run) else ():
        try:
            note = msgspec.json.decode(storage.read_own(path, _MAX_BYTES), type=Note)
        except (OSError, ValueError):  # also of bytes that are not UTF-8
            continue
        if note.id == path.name.removesuffix(".json"):
            notes.append(note)
    return sorted(notes, key=lambda note: (note.from_ns, note.to_ns, note.id))


def read_note(body: bytes) -> Note:
    """Return the note in the body of a request.

    Raises:
        UnusableInputError: The note is malformed.
    """
    try:
        note = msgspec.json.decode(body, type=Note)
    except ValueError as error:  # also of bytes that are not UTF-8
        raise UnusableInputError(f"not a note: {error}", hint="from_ns, to_ns, row and text") from None
    if note.to_ns < note.from_ns or (note.row and not parse_row(note.row)):
        raise UnusableInputError("not a note: impossible range or row", hint="from_ns is at most to_ns")
    return note


def save_note(store: Store, run: Run, note: Note, note_id: str = "") -> Note:
    """Add a note, or replace one.

    Args:
        store: The store of the run.
        run: The run.
        note: The note; its `id` and `written_at` are replaced.
        note_id: The note to replace.

    Raises:
        UnusableInputError: There are too many notes, or the store cannot be written.
        RunNotFoundError: There is no such note.
    """
    if note_id:
        _check_exists(run, note_id)
    elif len(storage.inside(run.path / FOLDER, "*.json")) >= MAX_NOTES:
        raise UnusableInputError(f"the run has {MAX_NOTES} notes", hint="delete some of them")
    note.id = note_id or secrets.token_hex(6)
    note.written_at = timestamp(datetime.now(UTC))
    with store.convert_write_errors(), storage.put(_place(run, note.id)) as file:
        file.write_bytes(msgspec.json.encode(note))
    return note


def remove_note(store: Store, run: Run, note_id: str) -> None:
    """Delete a note.

    Args:
        store: The store of the run.
        run: The run.
        note_id: The note.

    Raises:
        UnusableInputError: The store cannot be written.
        RunNotFoundError: There is no such note.
    """
    _check_exists(run, note_id)
    with store.convert_write_errors():
        _place(run, note_id).unlink(missing_ok=True)


def _is_linked(run: Run) -> bool:
    """Return whether the folder of the notes is a link, which may lead out of the store."""
    return (run.path / FOLDER).is_symlink()


def _place(run: Run, note_id: str) -> storage.Place:
    if _is_linked(run):
        raise UnusableInputError("the folder of the notes is a link", hint=f"remove {run.path.name}/{FOLDER}")
    return run.path / FOLDER / f"{note_id}.json"


def _check_exists(run: Run, note_id: str) -> None:
    if not _ID.fullmatch(note_id) or not _place(run, note_id).is_file():
        raise RunNotFoundError("the run has no such note", hint="it may have been deleted in another tab")
