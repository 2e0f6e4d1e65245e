"""Bytes as the machine sees them: a byte, a word, or the places among some bytes where something stands.

Numba has no type for an address, and none for a vector; these few functions are LLVM's own instructions, which
it lowers to what the processor has (SSE2, NEON). They read up to `WIDE` bytes from an address on: the text that
is scanned has so much room behind its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

WIDE = 16
"""Bytes that are compared at once: what every processor can, and strings are short."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
_VECTOR = ir.VectorType(_BYTE, WIDE)
_QUOTE, _BACKSLASH, _SPACE = 0x22, 0x5C, 0x20
_BLANKS = (0x20, 0x09, 0x0A, 0x0D)


def _loaded(builder: Any, address: Any, kind: Any) -> Any:
    pointer = builder.inttoptr(address, kind.as_pointer())
    loaded = builder.load(pointer)
    loaded.align = 1
    return loaded


def _everywhere(value: int) -> Any:
    return ir.Constant(_VECTOR, [ir.Constant(_BYTE, value)] * WIDE)


def _places(builder: Any, hits: Any) -> Any:
    """One bit for each comparison, the first the lowest."""
    return builder.zext(builder.bitcast(hits, ir.IntType(WIDE)), _WORD)


def _reading(result: Any, generate: Callable[[Any, Any], Any]) -> Any:
    """A function of an address."""

    @intrinsic
    def read(_context: Any, address: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return generate(builder, arguments[0])

        return result(address), codegen

    return read


def _byte(builder: Any, address: Any) -> Any:
    return builder.zext(_loaded(builder, address, _BYTE), _WORD)


def _word(builder: Any, address: Any) -> Any:
    return _loaded(builder, address, _WORD)


def _special(builder: Any, address: Any) -> Any:
    text = _loaded(builder, address, _VECTOR)
    quote = builder.icmp_unsigned("==", text, _everywhere(_QUOTE))
    escape = builder.icmp_unsigned("==", text, _everywhere(_BACKSLASH))
    control = builder.icmp_unsigned("<", text, _everywhere(_SPACE))
    return _places(builder, builder.or_(builder.or_(quote, escape), control))


def _solid(builder: Any, address: Any) -> Any:
    text = _loaded(builder, address, _VECTOR)
    blank = builder.icmp_unsigned("==", text, _everywhere(_BLANKS[0]))
    for other in _BLANKS[1:]:
        blank = builder.or_(blank, builder.icmp_unsigned("==", text, _everywhere(other)))
    return builder.xor(_places(builder, blank), ir.Constant(_WORD, (1 << WIDE) - 1))


def _lowest(builder: Any, word: Any) -> Any:
    return builder.cttz(word, ir.Constant(ir.IntType(1), 0))


@intrinsic
def peek(_context: Any, base: Any, index: Any) -> Any:
    """The int64 at a place of the array at an address."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(_element(builder, *arguments))

    return types.int64(base, index), codegen


@intrinsic
def poke(_context: Any, base: Any, index: Any, value: Any) -> Any:
    """Write an int64 to a place of the array at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base, index, value = arguments
        whole = context.cast(builder, value, signature.args[2], types.int64)
        builder.store(whole, _element(builder, base, index))
        return context.get_dummy_value()

    return types.void(base, index, value), codegen


def _element(builder: Any, base: Any, index: Any) -> Any:
    place = builder.add(base, builder.mul(index, ir.Constant(_WORD, 8)))
    return builder.inttoptr(place, _WORD.as_pointer())


byte = _reading(types.int64, _byte)
"""The byte at an address, 0 to 255."""
word = _reading(types.uint64, _word)
"""The eight bytes at an address, the first the lowest."""
special = _reading(types.uint64, _special)
"""Where, in `WIDE` bytes, a string ends or needs a closer look: quotes, backslashes and control characters."""
solid = _reading(types.uint64, _solid)
"""Where, in `WIDE` bytes, there is no white space."""
lowest = _reading(types.int64, _lowest)
"""Number of the lowest bit that is set; 64 when none is."""


@intrinsic
def bits(_context: Any, real: Any) -> Any:
    """A float64 as the int64 of the same bits."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _WORD)

    return types.int64(real), codegen
