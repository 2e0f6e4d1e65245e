"""Make one damaged event valid JSON again, where that can be done without guessing."""

from __future__ import annotations

import re

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
