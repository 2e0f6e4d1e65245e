"""Parse JSON at an address, as strictly as the standard asks: numbers, strings, keys, whole values.

Functions named `..._end` take the address where something starts and return the address after it, or
`INVALID` where the text is not valid JSON or is something that only the reference decoder supports. A zero
byte follows the text, and no rule accepts it, so nothing here compares addresses with the text's end.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from tracekit.ingest.kineto.scan.codegen import intrinsics
from tracekit.ingest.kineto.scan.codegen.intrinsics import (
    INVALID,
    WORD,
    byte,
    compiled,
    equal,
    peek,
    poke,
    word,
)
from tracekit.ingest.kineto.scan.layout import KEYS, N_KEYS, NULL, SLOT, VALUE_BITS, VALUE_FIELDS, VALUES

QUOTE, COMMA, COLON, BACKSLASH, MINUS, ZERO, NINE = 0x22, 0x2C, 0x3A, 0x5C, 0x2D, 0x30, 0x39
OBJECT, OBJECT_END, ARRAY, ARRAY_END = 0x7B, 0x7D, 0x5B, 0x5D
MAX_DEPTH = 60
"""Nested arrays and objects that are followed: one bit of an int64 each."""
MAX_NUMBER, MAX_EXPONENT = 128, 2
"""Characters of a number, and digits of its exponent, that are followed: such numbers fit a float64."""
MAX_DIGITS = 19
"""Digits of the largest int64; a larger number of 19 digits overflows to a negative one."""
POWERS_OF_TEN = np.array([10**power for power in range(MAX_DIGITS)], np.int64)

_BLANK, _PLUS, _POINT, _LOWER = 0x20, 0x2B, 0x2E, 0x20
_U, _E, _D, _N, _EIGHT = (ord(letter) for letter in "uedn8")
_ESCAPED = np.array([chr(code) in '"\\/bfnrt' for code in range(256)])
_HEX = np.array([chr(code) in "0123456789abcdefABCDEF" for code in range(256)])
_NULL, _TRUE, _FALS = (int.from_bytes(text, "little") for text in (b"null", b"true", b"fals"))
_FOUR_BYTES = (1 << 32) - 1
_PHASE_KEY = int.from_bytes(b'"ph"', "little")
_ZEROS = int.from_bytes(b"0" * WORD, "little")
_PAIRS, _FIRST_HALF, _OTHER_HALF = 0x000000FF000000FF, (10**6 << 32) | 100, (10**4 << 32) | 1
_SPAN_BITS = 24
_SPAN_LENGTH = (1 << _SPAN_BITS) - 1
_NAME = SLOT.name
_VALUE_SHIFT = 29
_ADDRESS, _LENGTH = range(VALUE_FIELDS)

NO_SLOT = -1
"""Returned in place of a slot for an ignored key."""
_MAX_KEY = 32
_KEY_BITS = 9
_KEY_MASK = (1 << _KEY_BITS) - 1
_KEY_LENGTHS = np.array([len(key) for key in KEYS], np.int64)
_KEY_WORDS = np.array([np.frombuffer(key.ljust(_MAX_KEY, b"\0"), np.int64) for key in KEYS])


def _key_hashes(factor: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Hash each key's first eight bytes and length."""
    with np.errstate(over="ignore"):
        return ((_KEY_WORDS[:, 0] ^ _KEY_LENGTHS) * np.int64(factor)) >> (64 - _KEY_BITS) & _KEY_MASK


def _perfect_factor() -> int:
    """Find the first of a fixed sequence of odd factors with which no two keys collide."""
    for number in count(1):
        factor = (0x9E3779B97F4A7C15 * number | 1) % (1 << 63)
        if len(set(_key_hashes(factor).tolist())) == N_KEYS:
            return factor
    raise AssertionError


_KEY_FACTOR = _perfect_factor()
_KEY_SLOTS = np.full(1 << _KEY_BITS, NO_SLOT, np.int64)
_KEY_SLOTS[_key_hashes(_KEY_FACTOR)] = np.arange(N_KEYS)


@compiled
def span(start: int, end: int, origin: int) -> int:
    """Pack a range of the text into one number; `NULL` where it is too long for that."""
    if end - start > _SPAN_LENGTH:
        return NULL
    return ((start - origin) << _SPAN_BITS) | (end - start)


@compiled
def span_start(packed: int, origin: int) -> int:
    """Address of a packed range."""
    return origin + (packed >> _SPAN_BITS)


@compiled
def span_length(packed: int) -> int:
    """Length of a packed range."""
    return packed & _SPAN_LENGTH


@compiled
def starts_number(first: int) -> bool:
    """Whether a number starts with this byte."""
    return ZERO <= first <= NINE or first == MINUS


@compiled
def _digits_end(address: int) -> int:
    start = address
    ends = intrinsics.non_digits(address)
    while ends == 0:
        address += intrinsics.WIDE_BLOCK
        ends = intrinsics.non_digits(address)
    address += intrinsics.lowest_bit(ends)
    return INVALID if address == start else address


@compiled
def _number_end(address: int) -> int:
    """Skip a number; one that a float64 may not hold is refused by the reference where it is read."""
    start = address
    if byte(address) == MINUS:
        address += 1
    address = address + 1 if byte(address) == ZERO else _digits_end(address)
    if address != INVALID and byte(address) == _POINT:
        address = _digits_end(address + 1)
    if address != INVALID and byte(address) | _LOWER == _E:
        address = _exponent_end(address + 1)
    return INVALID if address - start > MAX_NUMBER else address


@compiled
def _exponent_end(address: int) -> int:
    if byte(address) in (_PLUS, MINUS):
        address += 1
    end = _digits_end(address)
    return INVALID if end - address > MAX_EXPONENT else end


@compiled
def read_number(address: int) -> tuple[int, int, int]:
    """Parse a number into its digits as one integer, the count of its decimals, and its end.

    The end is `INVALID` for more digits than an int64 holds, and for a number with an exponent.
    """
    negative = byte(address) == MINUS
    start = address + 1 if negative else address
    ends = intrinsics.non_digits(start)
    if ends == 0:
        return 0, 0, INVALID
    integer_digits, decimals = intrinsics.lowest_bit(ends), 0
    address = start + integer_digits
    digits = _append_digits(start, integer_digits, 0)
    if byte(address) == _POINT:
        ends >>= integer_digits + 1
        if ends == 0 or ends & 1:
            return 0, 0, INVALID
        decimals = intrinsics.lowest_bit(ends)
        digits = _append_digits(address + 1, decimals, digits)
        address += 1 + decimals
    leading_zero = integer_digits > 1 and byte(start) == ZERO
    too_large = integer_digits + decimals > MAX_DIGITS or digits < 0
    if integer_digits == 0 or leading_zero or too_large or byte(address) | _LOWER == _E:
        return 0, decimals, INVALID
    return (-digits if negative else digits), decimals, address


@compiled
def _append_digits(address: int, count: int, number: int) -> int:
    """Append the next digits of the text to a number; it may overflow."""
    while count > WORD:
        number = number * POWERS_OF_TEN[WORD] + _eight_digits(word(address) ^ _ZEROS)
        address += WORD
        count -= WORD
    values = (word(address) ^ _ZEROS) << 8 * (WORD - count)  # padded with leading zeros to eight digits
    return number * POWERS_OF_TEN[count] + _eight_digits(values) if count else number


@compiled
def _eight_digits(values: int) -> int:
    """Combine eight digits, one in each byte and the first in the lowest: to pairs, then to fours."""
    pairs = values * 10 + (values >> 8)
    return ((pairs & _PAIRS) * _FIRST_HALF + ((pairs >> 16) & _PAIRS) * _OTHER_HALF) >> 32


@compiled
def skip_blanks(address: int) -> int:
    """Skip white space."""
    if byte(address) > _BLANK:
        return address
    if byte(address) == _BLANK and byte(address + 1) > _BLANK:
        return address + 1
    marks = intrinsics.non_blanks(address)
    while marks == 0:
        address += intrinsics.BLOCK
        marks = intrinsics.non_blanks(address)
    return address + intrinsics.lowest_bit(marks)


@compiled
def string_end(address: int) -> int:
    """Find the closing quote of the string whose first character is here."""
    while True:
        marks = intrinsics.special(address)
        if marks == 0:
            address += intrinsics.BLOCK
            continue
        address += intrinsics.lowest_bit(marks)
        first = byte(address)
        if first == QUOTE:
            return address
        if first != BACKSLASH:
            return INVALID
        address = _escape_end(address)
        if address == INVALID:
            return INVALID


@compiled
def unescaped_end(address: int) -> int:
    """Find the closing quote of the string whose first character is here; `INVALID` if it has escapes."""
    marks = intrinsics.special(address)
    while marks == 0:
        address += intrinsics.BLOCK
        marks = intrinsics.special(address)
    address += intrinsics.lowest_bit(marks)
    return address if byte(address) == QUOTE else INVALID


@compiled
def _escape_end(address: int) -> int:
    """Skip an escape sequence; surrogates are left to the reference."""
    if _ESCAPED[byte(address + 1)]:
        return address + 2
    if byte(address + 1) != _U:
        return INVALID
    for index in range(2, 6):
        if not _HEX[byte(address + index)]:
            return INVALID
    if byte(address + 2) | _LOWER == _D and byte(address + 3) >= _EIGHT:
        return INVALID
    return address + 6


@compiled
def literal_end(address: int) -> int:
    """Skip null, true or false."""
    four = word(address) & _FOUR_BYTES
    if four in (_NULL, _TRUE):
        return address + 4
    if four == _FALS and byte(address + 4) == _E:
        return address + 5
    return INVALID


@compiled
def is_null(address: int) -> bool:
    """Whether the literal here is null."""
    return byte(address) == _N


@compiled
def _scalar_end(address: int) -> int:
    first = byte(address)
    if first == QUOTE:
        address = string_end(address + 1)
        return INVALID if address == INVALID else address + 1
    if starts_number(first):
        return _number_end(address)
    return literal_end(address)


@compiled
def _key_end(address: int) -> int:
    """Skip a member's key and its colon, to its value; an event in a value is left to the reference."""
    if byte(address) != QUOTE or word(address) & _FOUR_BYTES == _PHASE_KEY:
        return INVALID
    address = string_end(address + 1)
    if address == INVALID:
        return INVALID
    address = skip_blanks(address + 1)
    return skip_blanks(address + 1) if byte(address) == COLON else INVALID


@compiled
def value_end(address: int) -> int:
    """Skip a value of any kind; `objects` has a bit for each open bracket, 1 for an object's."""
    depth, objects = 0, 0
    while True:
        first = byte(address)
        if first in (OBJECT, ARRAY):
            if depth == MAX_DEPTH:
                return INVALID
            depth += 1
            objects = (objects << 1) | (1 if first == OBJECT else 0)
            address = skip_blanks(address + 1)
            if byte(address) != (OBJECT_END if first == OBJECT else ARRAY_END):
                if first == OBJECT:
                    address = _key_end(address)
                    if address == INVALID:
                        return INVALID
                continue
        else:
            address = _scalar_end(address)
            if address == INVALID or depth == 0:
                return address
            address = skip_blanks(address)
        address, depth, objects = _next_value(address, depth, objects)
        if address == INVALID or depth == 0:
            return address


@compiled
def _next_value(address: int, depth: int, objects: int) -> tuple[int, int, int]:
    """Close the brackets that end here, up to the next value or the end of the outermost one."""
    while True:
        inside_object = objects & 1 != 0
        first = byte(address)
        if first == COMMA:
            address = skip_blanks(address + 1)
            return (_key_end(address) if inside_object else address), depth, objects
        if first != (OBJECT_END if inside_object else ARRAY_END):
            return INVALID, depth, objects
        depth, objects = depth - 1, objects >> 1
        if depth == 0:
            return address + 1, depth, objects
        address = skip_blanks(address + 1)


@compiled
def read_key(address: int) -> tuple[int, int]:
    """Read a key; return the address of its value, and its slot. One with escapes may be any key: invalid."""
    if byte(address) != QUOTE:
        return INVALID, NO_SLOT
    end = unescaped_end(address + 1)
    if end == INVALID:
        return INVALID, NO_SLOT
    slot = _slot_of(address + 1, end - address - 1)
    address = skip_blanks(end + 1)
    return (skip_blanks(address + 1) if byte(address) == COLON else INVALID), slot


@compiled
def _slot_of(address: int, length: int) -> int:
    """Find the slot of a key by a perfect hash; `NO_SLOT` for any other key."""
    if length == 0 or length > _MAX_KEY:
        return NO_SLOT
    first = _key_word(address, length)
    slot = _KEY_SLOTS[((first ^ length) * _KEY_FACTOR) >> (64 - _KEY_BITS) & _KEY_MASK]
    if slot == NO_SLOT or _KEY_LENGTHS[slot] != length or _KEY_WORDS[slot, 0] != first:
        return NO_SLOT
    for index in range(1, (length + WORD - 1) // WORD):
        if _KEY_WORDS[slot, index] != _key_word(address + WORD * index, length - WORD * index):
            return NO_SLOT
    return int(slot)


@compiled
def _key_word(address: int, length: int) -> int:
    return word(address) if length >= WORD else word(address) & ((1 << 8 * length) - 1)


@compiled
def reset_value_cache(scratch: int) -> None:
    """Forget all cached values: their addresses are those of the previous text."""
    for entry in range(1 << VALUE_BITS):
        poke(scratch, VALUES + entry * VALUE_FIELDS + _LENGTH, 0)


@compiled
def cached_value_end(address: int, scratch: int, origin: int) -> int:
    """Skip a value of any kind, by comparison with an equal array or object that was parsed before.

    An op has the same arguments in call after call. Bytes that were a complete array or object once are one
    wherever they occur, since a bracket closes them.
    """
    first = byte(address)
    if first != ARRAY and first != OBJECT:
        return value_end(address)
    entry = VALUES + _cache_index(address, peek(scratch, _NAME), origin) * VALUE_FIELDS
    length = peek(scratch, entry + _LENGTH)
    if length > 0 and equal(peek(scratch, entry + _ADDRESS), address, length):
        return address + length
    end = value_end(address)
    if end != INVALID:
        poke(scratch, entry + _ADDRESS, address)
        poke(scratch, entry + _LENGTH, end - address)
    return end


@compiled
def _cache_index(address: int, name: int, origin: int) -> int:
    """Hash the first 16 bytes of a value and the last 8 of the event's name."""
    mixed = word(address)
    if name != NULL and span_length(name) >= WORD:
        mixed ^= word(span_start(name, origin) + span_length(name) - WORD)
    mixed *= intrinsics.MIX
    mixed = ((mixed >> _VALUE_SHIFT) ^ mixed ^ word(address + WORD)) * intrinsics.MIX
    return (mixed >> (64 - VALUE_BITS)) & ((1 << VALUE_BITS) - 1)
