"""JSON at an address: white space, strings, numbers and whole values, checked as strictly as JSON asks.

Every function takes the address where something starts and gives the address behind it, or `BAD` where the
text is not valid JSON or is something that only the reference decoder handles. Behind a text's end stands a
byte that is no JSON, so nothing here need ask where the end is.
"""

from __future__ import annotations

import numpy as np

from tracekit.ingest.kineto.scan.machine.words import WIDE, byte, compiled, lowest, solid, special, word

BAD = -1
DEEPEST = 60
"""Nested arrays and objects that are followed."""
LONGEST_NUMBER, LONGEST_EXPONENT = 128, 2
"""Characters of a number and digits of its exponent that are followed: it surely fits a float64."""
MOST_DIGITS = 19
"""Digits of the largest int64; larger numbers of as many turn negative, which tells them."""

QUOTE, COMMA, COLON, MINUS, POINT, PLUS = 0x22, 0x2C, 0x3A, 0x2D, 0x2E, 0x2B
OPEN, CLOSE, LIST, LIST_END = 0x7B, 0x7D, 0x5B, 0x5D
_BLANK, _BACKSLASH, _ZERO, _NINE, _U, _E, _D, _N = 0x20, 0x5C, 0x30, 0x39, 0x75, 0x65, 0x64, 0x6E
_ESCAPED = np.array([chr(code) in '"\\/bfnrt' for code in range(256)])
_HEX = np.array([chr(code) in "0123456789abcdefABCDEF" for code in range(256)])
_NULL, _TRUE, _FALS = (int.from_bytes(text, "little") for text in (b"null", b"true", b"fals"))
_FOUR = (1 << 32) - 1


@compiled
def blanks(at: int) -> int:
    """The first byte that is no white space."""
    if byte(at) > _BLANK:
        return at
    if byte(at) == _BLANK and byte(at + 1) > _BLANK:
        return at + 1
    places = solid(at)
    while places == 0:
        at += WIDE
        places = solid(at)
    return at + lowest(places)


@compiled
def text_end(at: int) -> int:
    """The quote that ends the string whose first character is here."""
    while True:
        places = special(at)
        if places == 0:
            at += WIDE
            continue
        at += lowest(places)
        found = byte(at)
        if found == QUOTE:
            return at
        if found != _BACKSLASH:
            return BAD
        at = _escape_end(at)
        if at == BAD:
            return BAD


@compiled
def plain_end(at: int) -> int:
    """The quote that ends the string whose first character is here; `BAD` for one with escapes."""
    places = special(at)
    while places == 0:
        at += WIDE
        places = special(at)
    at += lowest(places)
    return at if byte(at) == QUOTE else BAD


@compiled
def _escape_end(at: int) -> int:
    """Behind the escape whose backslash is here; halves of surrogate pairs are not for us."""
    if _ESCAPED[byte(at + 1)]:
        return at + 2
    if byte(at + 1) != _U:
        return BAD
    for place in range(2, 6):
        if not _HEX[byte(at + place)]:
            return BAD
    if byte(at + 2) | 0x20 == _D and byte(at + 3) >= 0x38:
        return BAD
    return at + 6


@compiled
def digits_end(at: int) -> int:
    """Behind the digits that start here, of which there is at least one."""
    start = at
    while _ZERO <= byte(at) <= _NINE:
        at += 1
    return BAD if at == start else at


@compiled
def number_end(at: int) -> int:
    """Behind the number that starts here; a zero leads no other digit, so what follows it is none.

    The reference refuses a number that no float64 holds where it must read it, so such ones are its own.
    """
    start = at
    if byte(at) == MINUS:
        at += 1
    at = at + 1 if byte(at) == _ZERO else digits_end(at)
    if at != BAD and byte(at) == POINT:
        at = digits_end(at + 1)
    if at != BAD and byte(at) | 0x20 == _E:
        at = _exponent_end(at + 1)
    return BAD if at - start > LONGEST_NUMBER else at


@compiled
def _exponent_end(at: int) -> int:
    if byte(at) in (PLUS, MINUS):
        at += 1
    end = digits_end(at)
    return BAD if end - at > LONGEST_EXPONENT else end


@compiled
def literal_end(at: int) -> int:
    """Behind the null, true or false that starts here."""
    four = word(at) & _FOUR
    if four in (_NULL, _TRUE):
        return at + 4
    if four == _FALS and byte(at + 4) == _E:
        return at + 5
    return BAD


@compiled
def starts_number(first: int) -> bool:
    """Whether a number starts with this byte."""
    return _ZERO <= first <= _NINE or first == MINUS


@compiled
def is_null(at: int) -> bool:
    """Whether a literal that starts here is null."""
    return byte(at) == _N


@compiled
def scalar_end(at: int) -> int:
    """Behind the string, number or literal that starts here."""
    first = byte(at)
    if first == QUOTE:
        at = text_end(at + 1)
        return BAD if at == BAD else at + 1
    if starts_number(first):
        return number_end(at)
    return literal_end(at)


@compiled
def key_end(at: int) -> int:
    """The value of the member whose key starts here."""
    if byte(at) != QUOTE:
        return BAD
    at = text_end(at + 1)
    if at == BAD:
        return BAD
    at = blanks(at + 1)
    return blanks(at + 1) if byte(at) == COLON else BAD


@compiled
def value_end(at: int) -> int:
    """Behind the value that starts here, whatever it holds; a bit of `objects` for each open bracket."""
    depth, objects = 0, 0
    while True:
        first = byte(at)
        if first in (OPEN, LIST):
            if depth == DEEPEST:
                return BAD
            depth += 1
            objects = (objects << 1) | (1 if first == OPEN else 0)
            at = blanks(at + 1)
            if byte(at) != (CLOSE if first == OPEN else LIST_END):
                if first == OPEN:
                    at = key_end(at)
                    if at == BAD:
                        return BAD
                continue
        else:
            at = scalar_end(at)
            if at == BAD or depth == 0:
                return at
            at = blanks(at)
        at, depth, objects = _next_value(at, depth, objects)
        if at == BAD or depth == 0:
            return at


@compiled
def _next_value(at: int, depth: int, objects: int) -> tuple[int, int, int]:
    """Behind a value or at a closing bracket: close what ends here, up to the next value or the outer end."""
    while True:
        inside_object = objects & 1 != 0
        found = byte(at)
        if found == COMMA:
            at = blanks(at + 1)
            return (key_end(at) if inside_object else at), depth, objects
        if found != (CLOSE if inside_object else LIST_END):
            return BAD, depth, objects
        depth, objects = depth - 1, objects >> 1
        if depth == 0:
            return at + 1, depth, objects
        at = blanks(at + 1)


@compiled
def _more_digits(at: int, digits: int) -> tuple[int, int]:
    """Behind the digits that start here, and the number with these at its end."""
    digit = byte(at) - _ZERO
    while 0 <= digit <= 9:
        digits = digits * 10 + digit
        at += 1
        digit = byte(at) - _ZERO
    return at, digits


@compiled
def read_number(at: int) -> tuple[int, int, int]:
    """A number's digits as one integer, how many of them stand behind the point, and where it ends.

    Numbers of more digits than an int64 surely holds, and those with an exponent, end `BAD`.
    """
    negative = byte(at) == MINUS
    at += 1 if negative else 0
    start = at
    at, digits = _more_digits(at, 0)
    whole = at - start
    decimals = 0
    if byte(at) == POINT:
        first = at + 1
        at, digits = _more_digits(first, digits)
        decimals = at - first
        if decimals == 0:
            return 0, decimals, BAD
    leads = whole > 1 and byte(start) == _ZERO
    too_large = whole + decimals > MOST_DIGITS or digits < 0
    if whole == 0 or leads or too_large or byte(at) | 0x20 == _E:
        return 0, decimals, BAD
    return (-digits if negative else digits), decimals, at
