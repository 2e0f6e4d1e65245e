"""Read a Kineto trace: decode its chunks in parallel to the spool, repair damage, and report diagnostics."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from tracekit.errors import UnusableInputError
from tracekit.ingest.kineto import split
from tracekit.ingest.kineto.batches import Tally, to_batches
from tracekit.ingest.kineto.events import Decoded, decode, salvage, top_level, value_end
from tracekit.ingest.kineto.merged import tells_ranks
from tracekit.ingest.kineto.scan.loader import Scanners
from tracekit.ingest.kineto.source import Stream, file_bytes, file_name, open_trace, title
from tracekit.ingest.kineto.split import Text
from tracekit.ingest.link.trace import TopLevel, Trace
from tracekit.ingest.pool import Pool
from tracekit.ingest.spool import part_files
from tracekit.ingest.spool.text_columns import LISTED
from tracekit.runs.meta import Diagnostic, Level
from tracekit.storage import Place

_MAX_NAME_CHARS = 60


def _diagnostics(
    name: str,
    top: TopLevel,
    tally: Tally,
    *,
    truncated: str,
    trailing: int,
    events_at: int | None,
    broken: int | None,
) -> Iterator[Diagnostic]:
    """Yield diagnostics of decoding.

    Args:
        name: Name of the file.
        top: Its top level.
        tally: Counts of unusual events.
        truncated: Why events end early; empty if they do not.
        trailing: Bytes that were not read.
        events_at: Position in the text from which they have further events; None without.
        broken: Position in the text of the first damaged event that others follow; None without one.
    """
    if top.simulated:
        yield Diagnostic(Level.INFO, "simulated", f"{name}: written by a simulator, not recorded")
    if truncated:
        yield Diagnostic(Level.WARN, "truncated", f"{name}: {truncated}; the events before that were kept")
    no_duration = "are unfinished (column `unfinished`): with no usable duration, which was set to 0"
    dropped = "could not be read and were dropped"
    if broken is not None:
        dropped += f", the first at byte {broken:,}: was the file edited, or written by two processes?"
    counts = (
        ("dropped_events", tally.dropped, dropped),
        ("bad_timestamp", tally.bad_time, "had no usable time stamp and were dropped"),
        ("repaired_events", tally.repaired, "were not valid JSON and were repaired"),
        ("bad_duration", tally.bad_duration, no_duration),
    )
    for code, count, what in counts:
        if count:
            message = f"{name}: {count} of {tally.events + tally.dropped} events {what}"
            level = Level.ERROR if what is dropped and broken is not None else Level.WARN
            yield Diagnostic(level, code, message)
    yield from _describe_ignored(name, tally)
    if trailing and events_at is not None:
        message = f"{name}: {trailing} bytes with events follow the end of the trace, at byte {events_at:,}"
        advice = "was the file written by two processes? Split it, and import each trace"
        yield Diagnostic(Level.ERROR, "trailing_data", f"{message}, and were not read; {advice}")
    elif trailing:
        message = f"{name}: {trailing} bytes follow the end of the trace and were not read"
        advice = "import another trace from a file of its own"
        yield Diagnostic(Level.WARN, "trailing_data", f"{message}; {advice}")


def _describe_ignored(name: str, tally: Tally) -> Iterator[Diagnostic]:
    """Yield diagnostics of events that are not read, or without what tells their kind."""
    if tally.uncategorized:
        message = f"{name}: {tally.uncategorized} of {tally.events} events have no category"
        text = f"{message}, which torch.profiler writes, and are taken for ops, also those of a device"
        most = 2 * tally.uncategorized > tally.events
        yield Diagnostic(Level.ERROR if most else Level.WARN, "no_category", text)
    ignored = dict(tally.ignored)
    if begun := ignored.pop("phase B", 0):
        open_ = max(0, begun - ignored.pop("phase E", 0))
        message = f"{name}: {begun} intervals whose begin and end are events of their own (phases B and E)"
        text = f"{message} were not read; {open_} of them are unfinished"
        yield Diagnostic(Level.WARN, "begin_and_end", text)
    if ignored:
        listed = _join_names(f"{category} ({count})" for category, count in sorted(ignored.items()))
        level = Level.WARN if 2 * sum(ignored.values()) > tally.events else Level.INFO
        yield Diagnostic(level, "ignored_categories", f"{name}: categories that are not read: {listed}")


def _join_names(names: Iterable[str]) -> str:
    """List the first names, shortened, and the number of further ones."""
    shown = [name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}..." for name in names]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return ", ".join(shown[:LISTED]) + more


def _describe_cut(stream: Stream, assembly: _Assembly, size: int) -> str:
    """Say where a trace ends early, and what share of its file could not be read; empty if it is whole."""
    if not stream.damage and assembly.is_whole:
        return ""
    at, unread = stream.damaged_at, size - stream.damaged_at
    if not stream.damage:  # then bytes are those of the text, also of a compressed file
        at = size = assembly.position - 1
        unread = assembly.lost
    what = stream.damage or "the file ends in the middle of its events"
    part = f"{unread / size:.1%}" if size and unread >= size / 1_000 else "less than 0.1%"
    share = f"; {part} of the file could not be read" if unread and size else ""
    return f"{what}, at byte {at:,}{share}, and what was cut off is not in it"


def _unread_events(name: str, header: bytes, assembly: _Assembly, end: int) -> Iterator[Diagnostic]:
    """Yield that a file has events outside of its list, or inside of others, which are not read.

    Args:
        name: Name of the file.
        header: Text before the events.
        assembly: The decoded events.
        end: End of the trace in `assembly.after`.
    """
    after, first = assembly.after[:end], assembly.after_at
    start = split.second_events(after)
    advice = "split the file, and import both parts"
    place = "" if assembly.around is None else f" (the first in the one at byte {assembly.around:,})"
    inside = (
        (assembly.tally.in_members, Level.ERROR, f"other events{place} and were not read; {advice}"),
        (assembly.tally.in_args, Level.WARN, f"arguments{place}, which are data, and were not read"),
    )
    for count, level, where in inside:
        if count:
            yield Diagnostic(level, "nested_events", f"{name}: {count:,} events are inside of {where}")
    if start is not None and start < len(after):
        rest = len(after) - start
        events = split.count_boundaries(after[start:]) * (rest + assembly.beyond) // rest
        message = f"{name}: a second list of events, from byte {first + start:,}, was not read"
        yield Diagnostic(Level.ERROR, "second_list", f"{message}: about {events:,} events; {advice}")
        return
    for text, offset in (header, 0), (after, first):
        marks = [offset + match.start() for match in split.EVENT_MARK.finditer(text)]
        if marks:
            message = f"{name}: {len(marks):,} events outside of their list, from byte {marks[0]:,}"
            yield Diagnostic(Level.ERROR, "second_list", f"{message}, were not read; {advice}")


_WHOLE_END = re.compile(rb"\}\s*\](?:\s*|\s*,\s*\"[^\"]*\"\s*:[^\]]*)\}?\s*\Z")
_END_BYTES = 4_096
_SALVAGED = 800_000  # number of the first spool part of events that were salvaged from damaged text


class _Chunk(msgspec.Struct, frozen=True):
    """A chunk to decode, which can be sent to another process."""

    text: bytes
    directory: str
    number: int


class _Piece(msgspec.Struct, frozen=True):
    """A chunk as a view of its buffer."""

    text: Text
    directory: Path
    number: int

    @property
    def chunk(self) -> _Chunk:
        return _Chunk(bytes(self.text.view), str(self.directory), self.number)


class _Report(msgspec.Struct, frozen=True):
    """Result of decoding a chunk, whose batches are spooled; `clean`, `ended` and `tail` are of `Decoded`."""

    tally: Tally
    clean: bool
    ended: bool
    tail: bytes
    damaged: int = -1  # position in the chunk of the first event that was dropped, -1 without one
    around: int = -1  # position in the chunk of the first event that holds others, -1 without one


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the garbage collector: millions of events without cycles would be traversed."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decode_to_spool(chunk: _Chunk, decoder: Callable[[bytes], Decoded] = decode) -> _Report:
    with _no_collection():
        decoded = decoder(chunk.text)
        batches, tally = to_batches(decoded)
    part_files.write_batches(Path(chunk.directory), chunk.number, batches)
    damaged = chunk.text.find(decoded.damaged) if decoded.dropped else -1
    around = chunk.text.find(decoded.around) if decoded.around else -1
    return _Report(tally, decoded.clean, decoded.ended, decoded.tail, damaged, around)


def peek(path: Place) -> TopLevel:
    """Read the top level before the events of a trace.

    Raises:
        UnusableInputError: The file is not a Kineto trace.
    """
    with open_trace(path) as stream:
        return top_level(split.read_opening(stream, title(path)).header, b"")


def read(
    path: Place,
    directory: Path,
    pool: Pool,
    progress: Callable[[int], None],
    *,
    scanners: Scanners | None = None,
    chunk_bytes: int = split.CHUNK_BYTES,
) -> Trace:
    """Decode a trace to the spool.

    Args:
        path: The file, or `-` for standard input.
        directory: An existing folder for the batches.
        pool: Pool that decodes chunks.
        progress: Called with the bytes of the file read so far.
        scanners: Loader of compiled scanners; without it, the reference decoder decodes all chunks.
        chunk_bytes: Approximate size of a chunk.

    Raises:
        UnusableInputError: The file is not a Kineto trace.
    """
    name = file_name(path)
    with open_trace(path) as stream:
        opening = split.read_opening(stream, title(path))
        assembly = _Assembly(directory, position=len(opening.header))
        buffers = split.Buffers()
        texts = split.chunks(stream, opening.rest, size=chunk_bytes, buffers=buffers)
        pieces = (_Piece(text, directory, number) for number, text in enumerate(texts))
        scanners = scanners or Scanners()
        for piece, report in pool.map_in_order(partial(_decode_piece, pool, scanners), pieces):
            assembly.add(piece, report)
            buffers.give(piece.text.buffer)
            progress(stream.position())
        assembly.finish()
        end = value_end(opening.header, assembly.after) if assembly.ended else len(assembly.after)
        top = top_level(opening.header, assembly.after[:end])
        cut = _describe_cut(stream, assembly, file_bytes(path))
        notes = _diagnostics(
            name,
            top,
            assembly.tally,
            truncated=cut,
            trailing=len(assembly.after) - end + assembly.beyond + stream.ignored,
            events_at=assembly.after_at + end if b'"ph"' in assembly.after[end:] else None,
            broken=assembly.broken if assembly.is_whole else None,
        )
        unread = tuple(_unread_events(name, opening.header, assembly, end))
        return Trace(
            path=path,
            directory=directory,
            top=top,
            notes=(*notes, *unread),
            empty=_not_a_trace(path, assembly.tally, unread, cut),
            nest=scanners.nest(),
            tells_ranks=tells_ranks(opening.rest),
        )


def _decode_piece(pool: Pool, scanners: Scanners, piece: _Piece) -> _Report:
    """Decode a piece: by a scanner if one is ready and accepts it, else by the reference decoder."""
    scanner = scanners.mine()
    scanned = scanner.scan(piece.text) if scanner else None
    if scanned is None:
        return pool.call_in_process(_decode_to_spool, piece.chunk)
    tail = b"" if scanned.closed is None else bytes(piece.text.view[scanned.closed :])
    if tail and not split.closes_events(tail, 0):
        return pool.call_in_process(_decode_to_spool, piece.chunk)
    part_files.write_batches(piece.directory, piece.number, scanned.batches)
    return _Report(scanned.tally, not tail, bool(tail), tail)


class _Assembly(msgspec.Struct):
    """Combines the results of chunks in order: joins events that a cut has split, and stops at their end.

    `after` is the text from the bracket that closes the events, `beyond` the number of bytes after that.
    `position` is the place of the next chunk in the text, `broken` that of the first damaged event, `around`
    that of the first one that holds others.
    `lost` are the bytes that could not be read. `ends_whole` says whether what is unfinished ends as a trace
    does: then it was not cut off, but something in it opens a string or a bracket.
    `_open` is the unfinished event at the end of the last chunk, which was split or is damaged.
    """

    directory: Path
    position: int = 0
    broken: int | None = None
    around: int | None = None
    tally: Tally = msgspec.field(default_factory=Tally)
    ended: bool = False
    after: bytes = b""
    beyond: int = 0
    lost: int = 0
    ends_whole: bool = False
    _open: bytes = b""
    _salvaged: int = 0

    def add(self, piece: _Piece, report: _Report) -> None:
        """Add the result of the next chunk."""
        end = self.position + piece.text.length
        self._add(piece, report)
        self.position = end + 1  # with the comma at which it was cut

    def _add(self, piece: _Piece, report: _Report) -> None:
        while self._open and not self.ended:
            joined = None if report.clean else self._decode_joined(piece.chunk)
            if joined:
                self._take(joined, self._open_from)
                return
            self._give_up()
        if self.ended:
            part_files.discard(self.directory, piece.number)
            if len(self.after) < split.EVENT_LIMIT:
                self.after += b"," + piece.text.view
            else:
                self.beyond += piece.text.length + 1
            return
        self._take(report, self.position)

    @property
    def _open_from(self) -> int:
        return self.position - 1 - len(self._open)

    @property
    def after_at(self) -> int:
        """Position of `after` in the text."""
        return self.position - 1 - self.beyond - len(self.after)

    @property
    def is_whole(self) -> bool:
        """Whether the end of the events was found, or is there and cannot be told from damaged text."""
        return self.ended or (self.ends_whole and self.tally.dropped > 0)

    def finish(self) -> None:
        """Salvage an unfinished event at the end."""
        self.ends_whole = bool(_WHOLE_END.search(self._open[-_END_BYTES:]))
        while self._open:
            self._give_up()

    def _take(self, report: _Report, start: int) -> None:
        """Add what was decoded from this position on."""
        self.tally.add(report.tally)
        if self.broken is None and report.damaged >= 0:
            self.broken = start + report.damaged
        if self.around is None and report.around >= 0:
            self.around = start + report.around
        self.ended = report.ended
        self.after = report.tail if report.ended else b""
        self._open = b"" if report.ended else report.tail

    def _decode_joined(self, chunk: _Chunk) -> _Report | None:
        """Return the chunk with the unfinished event before it; None if that event is damaged."""
        report = _decode_to_spool(msgspec.structs.replace(chunk, text=self._open + b"," + chunk.text))
        if report.tally.events and not report.tally.dropped:
            return report
        part_files.discard(self.directory, chunk.number)
        _decode_to_spool(chunk)  # spools again what the joined chunk has replaced
        return None

    def _give_up(self) -> None:
        """Salvage the events of the unfinished text, which is damaged; the rest of it is shorter."""
        before, self._salvaged = self._open, self._salvaged + 1
        number = _SALVAGED + self._salvaged
        start = self._open_from
        self._take(_decode_to_spool(_Chunk(before, str(self.directory), number), salvage), start)
        if len(self._open) == len(before):
            self.tally.dropped += split.count_boundaries(before)
            self.lost += len(before)
            self.broken = start if self.broken is None else self.broken
            self._open = b""


def _not_a_trace(path: Place, tally: Tally, unread: tuple[Diagnostic, ...], cut: str) -> UnusableInputError:
    if unread:
        hint = "the list that is read has no events with a duration"
        return UnusableInputError(unread[0].message, hint=hint)
    if tally.ignored:
        kinds = _join_names(sorted(tally.ignored))
        message = f"none of the {tally.events} events in {title(path)} is of a supported category: {kinds}"
        return UnusableInputError(message, hint="export the trace with torch.profiler's export_chrome_trace")
    message = f"{title(path)} has no events with a duration"
    if cut:
        return UnusableInputError(f"{message}: {cut}", hint="copy or record the trace again")
    return UnusableInputError(message, hint="profile at least one step, with activities enabled")
