"""Text of unknown origin as a terminal may show it: what could steer one is spelled out."""

from __future__ import annotations

import os
import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
MOST_SAID = 2_000
"""Characters of one message: names in it may be as long as a file likes; a screen is about as large."""
_END = 200
"""So many of them are its last ones, where it is cut."""


def clean(text: str) -> str:
    r"""The text with control, bidirectional and invisible characters spelled out.

    Example:
        >>> clean("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    return _UNSAFE.sub(lambda match: _spelled(ord(match[0])), text)


def printable(text: str) -> str:
    r"""Text from the file system in valid UTF-8.

    Example:
        >>> printable("\udcff.json")
        '�.json'
    """
    return os.fsencode(text).decode("utf-8", "replace")


def message(text: str) -> str:
    r"""A message as one line of bounded length, whatever names it quotes.

    Example:
        >>> message("no file \x1b[2J\n")
        'no file \\x1b[2J\\x0a'
    """
    return _short(clean(_short(text)))


def _short(text: str) -> str:
    """The beginning and the end, which says why, of a text that is too long."""
    return text if len(text) <= MOST_SAID else f"{text[: MOST_SAID - _END]}...{text[-_END:]}"


def _spelled(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
