"""Cut a trace's text into its top level and chunks of whole events, without decoding it.

A cut is made where an object ends, a comma follows and another object starts. That may lie inside an event (a
list of objects among its arguments, or text that looks like one); then the piece before the cut is not valid
JSON, which the decoder notices, and `Pieces` (below) is asked where its events really end.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.kineto.source import Stream


CHUNK_BYTES = 8 << 20
_OPENING = 1 << 18
"""Bytes that are looked at first for what stands before the events; who only looks reads no more."""
HEADER_LIMIT = 256 << 20
EVENT_LIMIT = 16 << 20
"""No event is as long as this; a piece without a boundary in so many bytes is damaged."""

ROOM = 64
"""Zeros behind a piece: the widest load that looks beyond its end."""
_OVERLAP = 1 << 16
"""A boundary with all its white space is shorter than this."""
_NEAR = 1 << 12
"""Bytes in which a boundary is looked for first: some events."""

_CUT = re.compile(rb"\}\s*,(?=\s*\{)")
_TOKEN = (
    re.compile(  # a string may lack its end; what it has is never gone back over, which would take memory
        rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL
    )
)
_NEXT_EVENT = re.compile(
    rb'\}\s*,(?=\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:)'  # the keys an event has
)
_END = re.compile(rb'\]\s*(?:,\s*"|\}|\Z)')
_EVENTS_KEY = re.compile(rb"\s*:\s*\[")
_CLOSED_BY = {b"{": b"}", b"[": b"]"}
_SPACE = b" \t\r\n"
_NOTHING = memoryview(b"")


class Opening(msgspec.Struct, frozen=True):
    """The text up to and including the bracket that opens the events, and what was read beyond it."""

    header: bytes
    rest: bytes


def read_opening(stream: Stream, name: str) -> Opening:
    """Read up to the first event.

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
        text = buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text[:1] not in (b"{", b"") or not block or len(buffer) > HEADER_LIMIT:
            raise _not_a_trace(text, name, stream.damage)
        size = max(_OPENING, len(buffer))  # doubling keeps the repeated search linear


def _not_a_trace(text: bytes, name: str, damage: str) -> UnusableInputError:
    if damage:
        return UnusableInputError(f"{name}: {damage}", hint="copy or record the trace again")
    if not text:
        return UnusableInputError(f"{name} is empty", hint="record the trace again")
    what = "has no traceEvents" if text[:1] in b"{[" else "is not JSON"
    return UnusableInputError(
        f"{name} {what}: not a Kineto trace", hint="give a file exported by torch.profiler"
    )


def _events_start(buffer: bytes) -> int | None:
    start = len(buffer) - len(buffer.removeprefix(b"\xef\xbb\xbf").lstrip())
    if buffer[start : start + 1] == b"[":
        return start + 1 if _opens_events(buffer[start + 1 :]) else None
    if buffer[start : start + 1] != b"{" or b'"traceEvents"' not in buffer:
        return None
    depth = 0
    for token in _TOKEN.finditer(buffer, start):
        text = token.group()
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and text == b'"traceEvents"':
            match = _EVENTS_KEY.match(buffer, token.end())
            if match:
                return match.end()
    return None


def _opens_events(text: bytes) -> bool:
    """Whether a bare array starts like a list of events (or of nothing)."""
    return text.lstrip()[:1] in (b"{", b"]", b"")


class Text(msgspec.Struct, frozen=True):
    """A piece of a trace's text.

    Attributes:
        buffer: Its bytes, and `ROOM` zeros behind them, so that a decoder may look beyond its end.
        length: How many bytes it has.
    """

    buffer: memoryview
    length: int

    @property
    def view(self) -> memoryview:
        """Its bytes, not copied."""
        return self.buffer[: self.length]


class Buffers:
    """Memory of pieces that are done, used again: fresh memory costs as much as reading into it does."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def give(self, buffer: memoryview) -> None:
        """Take memory back."""
        self._free.append(buffer)

    def take(self, start: bytes | memoryview, size: int) -> memoryview:
        """Memory that begins so, and has room for `size` bytes in all and the zeros behind a piece."""
        buffer = self._free.pop() if self._free else _NOTHING
        if len(buffer) < size + ROOM:
            room = (size | _OVERLAP - 1) + 1 + ROOM  # the next piece may need a little more
            buffer = np.empty(room, np.uint8).data  # not cleared, and in huge pages
        buffer[: len(start)] = start
        return buffer


def chunks(
    stream: Stream, rest: bytes, *, size: int = CHUNK_BYTES, buffers: Buffers | None = None
) -> Iterator[Text]:
    """Pieces of about `size` bytes that hold whole events, the last one with what follows the events.

    Args:
        stream: Where the text comes from.
        rest: What of it was read already.
        size: About how many bytes a piece has.
        buffers: Where the memory of pieces comes from; who has one gives it back when it is done with it.
    """
    buffers = buffers or Buffers()
    filled, searched = len(rest), 0
    buffer = buffers.take(rest, filled + size)
    while True:
        if filled >= size:
            cut = _last_cut(buffer, searched, filled)
            if cut is None and filled > EVENT_LIMIT:
                cut = filled, filled  # no event is so long: what it is, is the decoder's to say
            if cut:
                carried = bytes(buffer[cut[1] : filled])  # who gets the piece may give its memory back
                yield _ended(buffer, cut[0])
                filled, searched = len(carried), 0
                buffer = buffers.take(carried, filled + size)
                continue
            searched = max(0, filled - _OVERLAP)
        if filled + ROOM >= len(buffer):
            buffer = buffers.take(buffer[:filled], 2 * (filled + size))
        read = stream.readinto(buffer[filled : min(filled + size, len(buffer) - ROOM)])
        if not read:
            break
        filled += read
    if bytes(buffer[:filled]).strip(_SPACE):
        yield _ended(buffer, filled)


def _ended(buffer: memoryview, length: int) -> Text:
    buffer[length : length + ROOM] = bytes(ROOM)
    return Text(buffer, length)


def _last_cut(buffer: memoryview, start: int, end: int) -> tuple[int, int] | None:
    """End of the last event that another follows, and the start of that one; looks from the end on.

    Between them is the comma alone: if the cut proves wrong, white space there may be a string's.
    """
    low, window = end, _NEAR
    while low > start:
        low, high = max(start, low - window), min(end, low + _OVERLAP)
        matches = list(_CUT.finditer(buffer, low, high))
        if matches:
            return matches[-1].end() - 1, matches[-1].end()
        window *= 4
    return None


class Pieces(msgspec.Struct, frozen=True):
    """A damaged or last chunk taken apart.

    Attributes:
        events: Text of each complete event.
        tail: What follows the last complete event: an unfinished one, or the rest of the top level.
        ended: Whether the bracket that closes the events was found; then `tail` starts with it.
    """

    events: list[bytes]
    tail: bytes
    ended: bool


def take_apart(text: bytes) -> Pieces:
    """Find the events of a chunk by their braces alone; tolerates anything between braces.

    Stops at the end of the text, at the closing bracket, or where a bracket closes another kind.

    Example:
        >>> take_apart(b'{"a": "}"}, {"b": 1} ], "traceName": 1}')
        Pieces(events=[b'{"a": "}"}', b'{"b": 1}'], tail=b'], "traceName": 1}', ended=True)
    """
    events: list[bytes] = []
    opened: list[bytes] = []
    start, done = 0, 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in _CLOSED_BY:
            start = start if opened else token.start()
            opened.append(_CLOSED_BY[mark])
        elif mark == b"]" and not opened and closes_events(text, token.start()):
            return Pieces(events, text[token.start() :], ended=True)
        elif mark in (b"}", b"]") and opened:
            if opened.pop() != mark:
                return Pieces(events, text[start:], ended=False)
            if not opened:
                done = token.end()
                events.append(text[start:done])
    return Pieces(events, text[done:].lstrip(_SPACE + b","), ended=False)


def closes_events(text: bytes, bracket: int) -> bool:
    """Whether a bracket outside of all events is the one that closes them, by what follows it."""
    return _END.match(text, bracket) is not None


def count_boundaries(text: bytes) -> int:
    """How many events a damaged text seems to hold, to be counted as lost."""
    return 1 + len(_CUT.findall(text))


def likely_events(text: bytes) -> list[bytes]:
    """Split damaged text where an event seems to start, whatever its braces say.

    Example:
        >>> likely_events(b'{"ph": "X", "name": "odd"quote"}, {"ph": "i"}')
        [b'{"ph": "X", "name": "odd"quote"}', b' {"ph": "i"}']
    """
    bounds = [0, *(match.end() for match in _NEXT_EVENT.finditer(text)), len(text) + 1]
    return [text[start : end - 1] for start, end in pairwise(bounds)]


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # one without an end is looked at once
_CONTROL = re.compile(rb"[\x00-\x1f]")
_PAIR = rb"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
_HALF = rb"(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
_VALID = rb'(?P<valid>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
_ESCAPE = re.compile(rb"|".join((_PAIR, _HALF, _VALID, rb"(?P<lone>\\)")))
_MENDED = {"half": b"\\ufffd", "lone": b"\\\\"}
_PART = (
    re.compile(  # never cut inside an escape; substituting takes memory for each place that is substituted
        rb"(?:" + _PAIR.replace(b"?P<pair>", b"?:") + rb"|\\u[0-9a-fA-F]{4}|\\.|\\|[^\\]{1,1024}+){1,1024}+",
        re.DOTALL,
    )
)
_NOT_A_NUMBER = re.compile(rb"[-+]?(?:NaN|Infinity|nan|inf)\b")


def repair(text: bytes) -> bytes:
    r"""Repair bad UTF-8, control characters and invalid escapes in strings, and NaN and infinities outside.

    Args:
        text: One event's text.

    Returns:
        The text with bad bytes and halves of surrogate pairs replaced by U+FFFD, control characters and lone
        backslashes escaped, and NaN and infinities as null.

    Example:
        >>> repair(b'{"name": "C:\\Users\x01", "dur": NaN}')
        b'{"name": "C:\\\\Users\\u0001", "dur": null}'
    """
    text = text.decode("utf-8", "replace").encode()
    made, done = bytearray(), 0
    for string in _STRING.finditer(text):
        made += _NOT_A_NUMBER.sub(b"null", text[done : string.start()])
        for part in _PART.finditer(text, string.start(), string.end()):
            made += _repair_string(part.group())
        done = string.end()
    made += _NOT_A_NUMBER.sub(b"null", text[done:])
    return bytes(made)


def _repair_string(text: bytes) -> bytes:
    text = _ESCAPE.sub(lambda match: _MENDED.get(match.lastgroup or "", match.group()), text)
    return _CONTROL.sub(lambda match: b"\\u%04x" % match.group()[0], text)
