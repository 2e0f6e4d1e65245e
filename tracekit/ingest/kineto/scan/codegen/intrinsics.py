"""LLVM instructions as functions: memory access and SIMD comparisons on raw addresses.

Numba has no pointer type and no vector type. An address is an int64 here, all numbers are int64, and
arithmetic wraps. The comparisons read up to `WIDE_BLOCK` bytes from an address, so padding follows a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

BLOCK = 16
"""Bytes compared at once in strings and white space, most of which are shorter."""
WIDE_BLOCK = 32
"""Bytes compared at once in numbers and between two texts."""
WORD = 8
"""Bytes of an int64."""
INVALID = -1
"""Returned as an end address for JSON that is invalid, or that only the reference decoder supports."""

MIX = 0x9E3779B97F4A7C15 - (1 << 64)
"""Multiplier of the hash functions: 2^64 divided by the golden ratio."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
_QUOTE, _BACKSLASH, _SPACE, _ZERO, _NINE = 0x22, 0x5C, 0x20, 0x30, 0x39
_BLANKS = (0x20, 0x09, 0x0A, 0x0D)


def compiled(function: Function) -> Function:
    """Compile a function with Numba when it is first called; it runs without the GIL."""
    return cast("Function", njit(nogil=True)(function))


def _unary(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of one number that returns an int64."""

    @intrinsic  # type: ignore[untyped-decorator]
    def call(_context: Any, argument: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return generate(builder, *arguments)

        return types.int64(argument), codegen

    return cast("Callable[..., Any]", call)


def _binary(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of two numbers that returns an int64."""

    @intrinsic  # type: ignore[untyped-decorator]
    def call(_context: Any, left: Any, right: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return generate(builder, *arguments)

        return types.int64(left, right), codegen

    return cast("Callable[..., Any]", call)


def _loaded(builder: Any, address: Any, kind: Any) -> Any:
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 1
    return loaded


def _byte(builder: Any, address: Any) -> Any:
    return builder.zext(_loaded(builder, address, _BYTE), _WORD)


def _word(builder: Any, address: Any) -> Any:
    return _loaded(builder, address, _WORD)


def _bytes(builder: Any, address: Any, width: int) -> Any:
    return _loaded(builder, address, ir.VectorType(_BYTE, width))


def _compared(builder: Any, how: str, text: Any, value: int) -> Any:
    constant = ir.Constant(text.type, [ir.Constant(_BYTE, value)] * text.type.count)
    return builder.icmp_unsigned(how, text, constant)


def _mask(builder: Any, hits: Any) -> Any:
    """Pack comparisons into an int64, the first as the lowest bit."""
    return builder.zext(builder.bitcast(hits, ir.IntType(hits.type.count)), _WORD)


def _special(builder: Any, address: Any) -> Any:
    text = _bytes(builder, address, BLOCK)
    quote = _compared(builder, "==", text, _QUOTE)
    escape = _compared(builder, "==", text, _BACKSLASH)
    control = _compared(builder, "<", text, _SPACE)
    return _mask(builder, builder.or_(builder.or_(quote, escape), control))


def _non_blanks(builder: Any, address: Any) -> Any:
    text = _bytes(builder, address, BLOCK)
    hits = _compared(builder, "!=", text, _BLANKS[0])
    for blank in _BLANKS[1:]:
        hits = builder.and_(hits, _compared(builder, "!=", text, blank))
    return _mask(builder, hits)


def _non_digits(builder: Any, address: Any) -> Any:
    text = _bytes(builder, address, WIDE_BLOCK)
    below, above = _compared(builder, "<", text, _ZERO), _compared(builder, ">", text, _NINE)
    return _mask(builder, builder.or_(below, above))


def _differences(builder: Any, left: Any, right: Any) -> Any:
    texts = [_bytes(builder, address, WIDE_BLOCK) for address in (left, right)]
    return _mask(builder, builder.icmp_unsigned("!=", *texts))


def _lowest_bit(builder: Any, word: Any) -> Any:
    return builder.cttz(word, ir.Constant(ir.IntType(1), 0))


def _float_bits(builder: Any, real: Any) -> Any:
    return builder.bitcast(real, _WORD)


def _element(builder: Any, base: Any, index: Any) -> Any:
    address = builder.add(base, builder.mul(index, ir.Constant(_WORD, WORD)))
    return builder.inttoptr(address, _WORD.as_pointer())


def _peek(builder: Any, base: Any, index: Any) -> Any:
    return builder.load(_element(builder, base, index))


@intrinsic  # type: ignore[untyped-decorator]
def _poke(_context: Any, base: Any, index: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base, index, value = arguments
        widened = context.cast(builder, value, signature.args[2], types.int64)
        builder.store(widened, _element(builder, base, index))
        return context.get_dummy_value()

    return types.void(base, index, value), codegen


byte: Callable[[int], int] = _unary(_byte)
"""The byte at an address, 0 to 255."""
word: Callable[[int], int] = _unary(_word)
"""The eight bytes at an address, little-endian."""
special: Callable[[int], int] = _unary(_special)
"""Mask of the quotes, backslashes and control characters in the next `BLOCK` bytes."""
non_blanks: Callable[[int], int] = _unary(_non_blanks)
"""Mask of the bytes other than white space in the next `BLOCK` bytes."""
non_digits: Callable[[int], int] = _unary(_non_digits)
"""Mask of the bytes other than digits in the next `WIDE_BLOCK` bytes."""
lowest_bit: Callable[[int], int] = _unary(_lowest_bit)
"""Index of the lowest bit that is set; the argument must not be zero."""
float_bits: Callable[[float], int] = _unary(_float_bits)
"""A float64 as the int64 of the same bits."""
differences: Callable[[int, int], int] = _binary(_differences)
"""Mask of the bytes that differ in the next `WIDE_BLOCK` bytes of two addresses."""
peek: Callable[[int, int], int] = _binary(_peek)
"""Element of the int64 array at an address: `peek(base, index)`."""
poke: Callable[[int, int, int], None] = _poke
"""Set an element of the int64 array at an address: `poke(base, index, value)`."""


@compiled
def equal(left: int, right: int, length: int) -> bool:
    """Compare two texts of the same length."""
    while length >= WIDE_BLOCK:
        if differences(left, right) != 0:
            return False
        left += WIDE_BLOCK
        right += WIDE_BLOCK
        length -= WIDE_BLOCK
    return differences(left, right) & ((1 << length) - 1) == 0
