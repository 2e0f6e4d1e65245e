"""Split a trace's text into its top level and chunks of whole events, without decoding it.

A cut is made where an object ends, a comma follows and another object starts. It may be inside an event (a
list of objects among its arguments, or text that looks like one); then the chunk before the cut is not valid
JSON, and `take_apart` finds the actual ends of its events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.ingest.kineto.source import FOREIGN, NOT_A_TRACE, Stream

CHUNK_BYTES = 8 << 20
"""Approximate bytes of a chunk: each has a fixed cost, and memory is bounded by their size."""
_OPENING = 1 << 18  # bytes that are read first for the top level before the events
HEADER_LIMIT = 256 << 20
"""Limit of the text before the events; a file with more is no trace."""
EVENT_LIMIT = 16 << 20
"""Limit of the length of an event; text without a boundary in so many bytes is damaged."""

ROOM = 64
"""Zero bytes after a piece: the widest load beyond its end."""
_OVERLAP = 1 << 16  # limit of the length of a boundary, with its white space
_NEAR = 1 << 12  # bytes in which a boundary is searched first: some events

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CUT = re.compile(rb"\}\s*,(?=\s*\{)")
_TOKEN = re.compile(  # a string may be unterminated; possessive, as backtracking would take memory
    rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL
)
_NEXT_EVENT = re.compile(
    rb'\}\s*,(?=\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:)'  # the keys of an event
)
_END = re.compile(rb'\]\s*(?:,\s*"|\}|\Z)')
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # an unfinished one is examined once
_AFTER = b"\0"
_BRACKETS = ((b"{", 1), (b"[", 1), (b"}", -1), (b"]", -1))
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_OTHER_JSON = {
    b'"rocprofiler-sdk-tool"': "JSON of rocprofv3",
    b"|execution_trace|": "an execution trace of PyTorch",
    b"-chakra.": "an execution trace of PyTorch",
    b'"pg_status"': "a dump of NCCL's flight recorder",
    b'"device_traces"': "a memory snapshot",
    b'"perfetto_manifest"': "a manifest of Perfetto (import it from its file, beside the traces)",
}
"""What other tools write into their JSON, and its name."""
_PROTOBUF = re.compile(rb"\n.{1,3}[\x00-\x08\x0e-\x1f]", re.DOTALL)
"""A trace of Perfetto begins with a line feed, a length and a tag, which no JSON contains."""
_SCALARS = re.compile(rb"(?:(?:null|true|false|-?\d[\d.eE+-]*+)[\s,]*+)*+")
"""What a list of events may contain beside them: it is of no event."""
_CLOSED_BY = {b"{": b"}", b"[": b"]"}
_SPACE = b" \t\r\n"
_NOTHING = memoryview(b"")


class Opening(msgspec.Struct, frozen=True):
    """The text up to and including the bracket that opens the events, and the text read beyond it."""

    header: bytes
    rest: bytes


def read_opening(stream: Stream, name: str) -> Opening:
    """Read the text before the first event.

    Raises:
        UnusableInputError: The text is not JSON, or has no `traceEvents`.
    """
    buffer, size = b"", _OPENING
    while True:
        block = stream.read(size)
        buffer += block
        end = _events_start(buffer)
        if end is not None:
            return Opening(buffer[:end], buffer[end:])
        text = buffer.removeprefix(_BYTE_ORDER_MARK).lstrip()
        if text[:1] not in (b"{", b"") or not block or len(buffer) > HEADER_LIMIT:
            damage = f"{stream.damage}, at byte {stream.damaged_at:,}" if stream.damage else ""
            raise _not_a_trace(buffer, text, name, damage, at_end=not block)
        size = max(_OPENING, len(buffer))  # doubling the size keeps the repeated search linear


def _not_a_trace(buffer: bytes, text: bytes, name: str, damage: str, *, at_end: bool) -> UnusableInputError:
    if text[257:262] == b"ustar":  # the magic number of tar, in the header of the first member
        message = f"{name} is a tar archive{NOT_A_TRACE}"
        return UnusableInputError(message, hint="unpack it (`tar -xf`), and import the folder")
    if damage:
        return UnusableInputError(f"{name}: {damage}", hint="copy or record the trace again")
    if not text:
        return UnusableInputError(f"{name} is empty", hint="record the trace again")
    what = "has no traceEvents" if text[:1] in b"{[" else "is not JSON"
    other = next((kind for begin, kind in FOREIGN.items() if buffer.startswith(begin)), "")  # if compressed
    other = next((kind for mark, kind in _OTHER_JSON.items() if mark in text[:_OPENING]), other)
    if _PROTOBUF.match(buffer) or (text[:1] not in b"{[" and name.endswith((".pftrace", ".perfetto-trace"))):
        other = "a trace of Perfetto in its own format (convert it: `traceconv json FILE`)"
    cut = f"ends in the middle, at byte {len(buffer):,}" if at_end and _is_cut(text) else ""
    if cut and not other:
        return UnusableInputError(f"{name} {cut}, before its events", hint="copy or record the trace again")
    other = f"{other} that {cut}" if cut else other
    message = f"{name} is {other}{NOT_A_TRACE}" if other else f"{name} {what}: not a Kineto trace"
    return UnusableInputError(message, hint="give a file exported by torch.profiler")


def _is_cut(text: bytes) -> bool:
    """Return whether a text begins as JSON that goes on after its end."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        return text[:1] == b"{" and "truncated" in str(error)
    except RecursionError:
        pass
    return False


def _events_start(buffer: bytes) -> int | None:
    """Return the position after the bracket that opens the events; None if it is not in the text so far."""
    # Brackets are counted, as other members before the events may contain what looks like them.
    start = len(buffer) - len(buffer.removeprefix(_BYTE_ORDER_MARK).lstrip())
    if buffer[start : start + 1] == b"[":
        # A bare list of events; a list of numbers is JSON, too.
        return start + 1 if buffer[start + 1 :].lstrip()[:1] in (b"{", b"]", b"") else None
    if buffer[start : start + 1] != b"{" or b'"traceEvents"' not in buffer:
        return None
    depth, done = 0, start
    while key := _EVENTS_KEY.search(buffer, done):
        # Brackets are counted without a loop over them: there may be millions.
        between = _STRING.sub(b"", buffer[done : key.start()] + _AFTER)
        depth += sum(sign * between.count(bracket) for bracket, sign in _BRACKETS)
        if not between.endswith(_AFTER):  # it is in a string, which goes on
            done = _skip_string(buffer, done, key.start())
            continue
        if depth == 1:
            return key.end()
        depth, done = depth + 1, key.end()
    return None


def _skip_string(buffer: bytes, start: int, inside: int) -> int:
    """Return the end of the string around a position, from a position outside of strings."""
    for string in _STRING.finditer(buffer, start):
        if string.end() > inside:
            return string.end()
    return len(buffer)


def second_events(after: bytes) -> int | None:
    """Return where another list of events begins in the text from the bracket that closes the first one.

    Example:
        >>> second_events(b'], "traceEvents": [{}]}'), second_events(b'], "args": {"traceEvents": []}}')
        (19, None)
    """
    if b'"traceEvents"' not in after:
        return None
    rest = after[1:].lstrip(_SPACE + b",")
    start = _events_start(b"{" + rest)
    return None if start is None else start - 1 + len(after) - len(rest)


EVENT_MARK = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')
"""What every event contains, and no other text of a trace."""


class Text(msgspec.Struct, frozen=True):
    """A piece of the text of a trace.

    Attributes:
        buffer: Its bytes, followed by `ROOM` zeros, so that a decoder may read beyond its end.
        length: Number of bytes.
    """

    buffer: memoryview
    length: int

    @property
    def view(self) -> memoryview:
        """Its bytes, without a copy."""
        return self.buffer[: self.length]


class Buffers:
    """Reused memory of decoded pieces; allocating memory takes as long as reading into it."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def give(self, buffer: memoryview) -> None:
        """Return memory for reuse."""
        self._free.append(buffer)

    def take(self, start: bytes | memoryview, size: int) -> memoryview:
        """Return memory that starts with some bytes and has `size` bytes in all, and space for the zeros."""
        buffer = self._free.pop() if self._free else _NOTHING
        if len(buffer) < size + ROOM:
            room = (size | _OVERLAP - 1) + 1 + ROOM  # the next piece may be a little larger
            buffer = np.empty(room, np.uint8).data  # uninitialized, in huge pages
        buffer[: len(start)] = start
        return buffer


def chunks(
    stream: Stream, rest: bytes, *, size: int = CHUNK_BYTES, buffers: Buffers | None = None
) -> Iterator[Text]:
    """Yield pieces of whole events; the last piece includes the text after the events.

    Args:
        stream: The text.
        rest: Text that was read already.
        size: Approximate bytes of a piece.
        buffers: Memory of pieces; the consumer returns it after use.
    """
    buffers = buffers or Buffers()
    filled, searched = len(rest), 0
    buffer = buffers.take(rest, filled + size)
    while True:
        if filled >= size:
            cut = _last_cut(buffer, searched, filled)
            if cut is None and filled > EVENT_LIMIT:
                cut = filled, filled  # longer than any event: left to the decoder
            if cut:
                carried = bytes(buffer[cut[1] : filled])  # the consumer of the piece may return its memory
                yield _pad(buffer, cut[0])
                filled, searched = len(carried), 0
                buffer = buffers.take(carried, filled + size)
                continue
            searched = max(0, filled - _OVERLAP)  # a boundary may continue in what is read next
        if filled + ROOM >= len(buffer):  # an event is longer than a chunk
            buffer = buffers.take(buffer[:filled], 2 * (filled + size))
        read = stream.readinto(buffer[filled : min(filled + size, len(buffer) - ROOM)])
        if not read:
            break
        filled += read
    if bytes(buffer[:filled]).strip(_SPACE):
        yield _pad(buffer, filled)


def _pad(buffer: memoryview, length: int) -> Text:
    buffer[length : length + ROOM] = bytes(ROOM)
    return Text(buffer, length)


def _last_cut(buffer: memoryview, start: int, end: int) -> tuple[int, int] | None:
    """Return the end of the last event that is followed by another, and the start of that one."""
    # Only the comma is between them: if the cut is wrong, the white space may belong to a string.
    # Backwards, in windows that grow: the last boundary is near the end unless the last event is long.
    low, window = end, _NEAR
    while low > start:
        low, high = max(start, low - window), min(end, low + _OVERLAP)
        matches = list(_CUT.finditer(buffer, low, high))
        if matches:
            return matches[-1].end() - 1, matches[-1].end()
        window *= 4
    return None


class Pieces(msgspec.Struct, frozen=True):
    """Events of a damaged or last chunk.

    Attributes:
        events: Text of each complete event, and any other text between two of them.
        tail: What follows the last complete event: an unfinished one, or the rest of the top level.
        ended: Whether the closing bracket of the events was found; then `tail` starts with it.
        gaps: Number of pairs of events without a comma, or with several, between them.
    """

    events: list[bytes]
    tail: bytes
    ended: bool
    gaps: int = 0


def take_apart(text: bytes) -> Pieces:
    """Split a chunk into events by their braces alone, with any text between them.

    Braces inside of strings do not count.

    Stops at the end of the text, at the closing bracket, or at a mismatched bracket.
    """
    events: list[bytes] = []
    opened: list[bytes] = []
    start = done = gaps = 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in _CLOSED_BY:
            if not opened:
                start = token.start()
                between = text[done:start].strip(_SPACE)
                rest = between.strip(_SPACE + b",")
                gaps += not rest and between != b"," and done > 0
                if not _SCALARS.fullmatch(rest):
                    events.append(rest)
            opened.append(_CLOSED_BY[mark])
        elif mark == b"]" and not opened and closes_events(text, token.start()):
            return Pieces(events, text[token.start() :], ended=True, gaps=gaps)
        elif mark in (b"}", b"]") and opened:
            if opened.pop() != mark:
                return Pieces(events, text[start:], ended=False, gaps=gaps)
            if not opened:
                done = token.end()
                events.append(text[start:done])
    return Pieces(events, text[done:].lstrip(_SPACE + b","), ended=False, gaps=gaps)


def closes_events(text: bytes, bracket: int) -> bool:
    """Return whether a bracket outside of events closes their list, from the text after it."""
    return _END.match(text, bracket) is not None


def count_boundaries(text: bytes) -> int:
    """Estimate the number of events in damaged text, to be counted as lost."""
    return 1 + len(_CUT.findall(text))


def likely_events(text: bytes) -> list[bytes]:
    """Split damaged text where events seem to start, regardless of braces."""
    bounds = [0, *(match.end() for match in _NEXT_EVENT.finditer(text)), len(text) + 1]
    return [text[start : end - 1] for start, end in pairwise(bounds)]


_CONTROL = re.compile(rb"[\x00-\x1f]")
_PAIR = rb"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
_HALF = rb"(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
_VALID = rb'(?P<valid>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
_ESCAPE = re.compile(rb"|".join((_PAIR, _HALF, _VALID, rb"(?P<lone>\\)")))
_REPAIRS = {"half": b"\\ufffd", "lone": b"\\\\"}
_PART = re.compile(  # not inside an escape; in slices, as each substitution takes memory
    rb"(?:" + _PAIR.replace(b"?P<pair>", b"?:") + rb"|\\u[0-9a-fA-F]{4}|\\.|\\|[^\\]{1,1024}+){1,1024}+",
    re.DOTALL,
)
_NOT_A_NUMBER = re.compile(
    rb"[-+]?(?:\b(?:NaN|Infinity|inf)\b(?:\(\w*\))?|\b1\.#(?:INF|IND|QNAN|SNAN)\w*)", re.IGNORECASE
)
"""As C writes them, also that of Windows."""


def repair(text: bytes) -> bytes:
    r"""Repair invalid UTF-8, control characters and invalid escapes in strings, and NaN and infinities.

    Returns:
        The text with invalid bytes and lone surrogates replaced by U+FFFD, control characters and lone
        backslashes escaped, and NaN and infinities as null.

    Example:
        >>> repair(b'{"name": "C:\\Users\x01", "dur": NaN}')
        b'{"name": "C:\\\\Users\\u0001", "dur": null}'
    """
    text = text.decode("utf-8", "replace").encode()
    repaired, done = bytearray(), 0
    for string in _STRING.finditer(text):
        repaired += _NOT_A_NUMBER.sub(b"null", text[done : string.start()])  # a string may contain "NaN"
        for part in _PART.finditer(text, string.start(), string.end()):
            repaired += _repair_string(part.group())
        done = string.end()
    repaired += _NOT_A_NUMBER.sub(b"null", text[done:])
    return bytes(repaired)


def _repair_string(text: bytes) -> bytes:
    """Repair a part of a string; pairs of surrogates and valid escapes are matched to be left as they are."""
    text = _ESCAPE.sub(lambda match: _REPAIRS.get(match.lastgroup or "", match.group()), text)
    return _CONTROL.sub(lambda match: b"\\u%04x" % match.group()[0], text)
