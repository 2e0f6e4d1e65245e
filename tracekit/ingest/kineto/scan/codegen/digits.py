"""Numbers of JSON: where they end, and what they are. Eight digits are read at once."""

from __future__ import annotations

import numpy as np

from tracekit.ingest.kineto.scan.codegen.intrinsics import (
    BAD,
    WIDEST,
    WORD,
    byte,
    compiled,
    lowest,
    no_digits,
    word,
)

MINUS = 0x2D
LONGEST_NUMBER, LONGEST_EXPONENT = 128, 2
"""Characters of a number and digits of its exponent that are followed: it surely fits a float64."""
MOST_DIGITS = 19
"""Digits of the largest int64; larger numbers of as many turn negative, which tells them."""
TENTHS = np.array([10**power for power in range(MOST_DIGITS)], np.int64)
"""The powers of ten that an int64 holds."""

_PLUS, _POINT, _ZERO, _NINE, _E = 0x2B, 0x2E, 0x30, 0x39, 0x65
_ZEROS = int.from_bytes(b"0" * WORD, "little")
_PAIRS, _FIRST_HALF, _OTHER_HALF = 0x000000FF000000FF, (10**6 << 32) | 100, (10**4 << 32) | 1


@compiled
def starts_number(first: int) -> bool:
    """Whether a number starts with this byte."""
    return _ZERO <= first <= _NINE or first == MINUS


@compiled
def _digits_end(at: int) -> int:
    """Behind the digits that start here, of which there is at least one."""
    start = at
    ends = no_digits(at)
    while ends == 0:
        at += WIDEST
        ends = no_digits(at)
    at += lowest(ends)
    return BAD if at == start else at


@compiled
def number_end(at: int) -> int:
    """Behind the number that starts here; a zero leads no other digit, so what follows it is none.

    The reference refuses a number that no float64 holds where it must read it, so such ones are its own.
    """
    start = at
    if byte(at) == MINUS:
        at += 1
    at = at + 1 if byte(at) == _ZERO else _digits_end(at)
    if at != BAD and byte(at) == _POINT:
        at = _digits_end(at + 1)
    if at != BAD and byte(at) | 0x20 == _E:
        at = _exponent_end(at + 1)
    return BAD if at - start > LONGEST_NUMBER else at


@compiled
def _exponent_end(at: int) -> int:
    if byte(at) in (_PLUS, MINUS):
        at += 1
    end = _digits_end(at)
    return BAD if end - at > LONGEST_EXPONENT else end


@compiled
def read_number(at: int) -> tuple[int, int, int]:
    """A number's digits as one integer, how many of them stand behind the point, and where it ends.

    Numbers of more digits than an int64 surely holds, and those with an exponent, end `BAD`.
    """
    negative = byte(at) == MINUS
    start = at + 1 if negative else at
    ends = no_digits(start)
    if ends == 0:
        return 0, 0, BAD
    whole, decimals = lowest(ends), 0
    at = start + whole
    digits = _read(start, whole, 0)
    if byte(at) == _POINT:
        ends >>= whole + 1
        if ends == 0 or ends & 1:
            return 0, 0, BAD
        decimals = lowest(ends)
        digits = _read(at + 1, decimals, digits)
        at += 1 + decimals
    leads = whole > 1 and byte(start) == _ZERO
    too_large = whole + decimals > MOST_DIGITS or digits < 0
    if whole == 0 or leads or too_large or byte(at) | 0x20 == _E:
        return 0, decimals, BAD
    return (-digits if negative else digits), decimals, at


@compiled
def _read(at: int, count: int, before: int) -> int:
    """The number of so many digits from here on, behind those of a number before; it may wrap."""
    while count > WORD:
        before = before * TENTHS[WORD] + _eight(word(at) ^ _ZEROS)
        at += WORD
        count -= WORD
    values = (word(at) ^ _ZEROS) << 8 * (WORD - count)  # with zeros before them, they are eight
    return before * TENTHS[count] + _eight(values) if count else before


@compiled
def _eight(values: int) -> int:
    """The number whose eight digits are the bytes of a word, first the lowest: by pairs, then by fours."""
    pairs = values * 10 + (values >> 8)
    return ((pairs & _PAIRS) * _FIRST_HALF + ((pairs >> 16) & _PAIRS) * _OTHER_HALF) >> 32
