"""Bytes as the machine sees them: a byte, a word, or the places among some bytes where something stands.

Numba has no type for an address, and none for a vector; these few functions are LLVM's own instructions,
which it lowers to what the processor has. They read up to `WIDE` bytes from an address on: there must be room
for that behind the end of a text. All numbers are int64, and wrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = TypeVar("Function", bound=Callable[..., Any])

WIDE = 16
"""Bytes that are compared at once: what every processor can, and most strings are short."""
WORD = 8
"""Bytes of a word."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
_VECTOR = ir.VectorType(_BYTE, WIDE)
_QUOTE, _BACKSLASH, _SPACE = 0x22, 0x5C, 0x20
_BLANKS = (0x20, 0x09, 0x0A, 0x0D)


def compiled(function: Function) -> Function:
    """Have a function compiled when it is first called; other threads run beside it."""
    return cast("Function", njit(nogil=True)(function))


def _instruction(result: Any, generate: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one address or number."""

    @intrinsic  # type: ignore[untyped-decorator]
    def call(_context: Any, given: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return generate(builder, *arguments)

        return result(given), codegen

    return cast("Callable[..., Any]", call)


def _loaded(builder: Any, address: Any, kind: Any) -> Any:
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 1
    return loaded


def _byte(builder: Any, address: Any) -> Any:
    return builder.zext(_loaded(builder, address, _BYTE), _WORD)


def _word(builder: Any, address: Any) -> Any:
    return _loaded(builder, address, _WORD)


def _everywhere(value: int) -> Any:
    return ir.Constant(_VECTOR, [ir.Constant(_BYTE, value)] * WIDE)


def _places(builder: Any, hits: Any) -> Any:
    """One bit for each comparison, the first the lowest."""
    return builder.zext(builder.bitcast(hits, ir.IntType(WIDE)), _WORD)


def _special(builder: Any, address: Any) -> Any:
    text = _loaded(builder, address, _VECTOR)
    quote = builder.icmp_unsigned("==", text, _everywhere(_QUOTE))
    escape = builder.icmp_unsigned("==", text, _everywhere(_BACKSLASH))
    control = builder.icmp_unsigned("<", text, _everywhere(_SPACE))
    return _places(builder, builder.or_(builder.or_(quote, escape), control))


def _solid(builder: Any, address: Any) -> Any:
    text = _loaded(builder, address, _VECTOR)
    solid = builder.icmp_unsigned("!=", text, _everywhere(_BLANKS[0]))
    for blank in _BLANKS[1:]:
        solid = builder.and_(solid, builder.icmp_unsigned("!=", text, _everywhere(blank)))
    return _places(builder, solid)


def _lowest(builder: Any, word: Any) -> Any:
    return builder.cttz(word, ir.Constant(ir.IntType(1), 0))


def _bits(builder: Any, real: Any) -> Any:
    return builder.bitcast(real, _WORD)


byte: Callable[[int], int] = _instruction(types.int64, _byte)
"""The byte at an address, 0 to 255."""
word: Callable[[int], int] = _instruction(types.int64, _word)
"""The eight bytes at an address, the first the lowest."""
special: Callable[[int], int] = _instruction(types.int64, _special)
"""Where, in `WIDE` bytes, a string ends or needs a closer look: quotes, backslashes, control characters."""
solid: Callable[[int], int] = _instruction(types.int64, _solid)
"""Where, in `WIDE` bytes, there is no white space."""
lowest: Callable[[int], int] = _instruction(types.int64, _lowest)
"""Number of the lowest bit that is set; there must be one."""
bits: Callable[[float], int] = _instruction(types.int64, _bits)
"""A float64 as the int64 of the same bits."""


def _element(builder: Any, base: Any, index: Any) -> Any:
    place = builder.add(base, builder.mul(index, ir.Constant(_WORD, WORD)))
    return builder.inttoptr(place, _WORD.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _peek(_context: Any, base: Any, index: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(_element(builder, *arguments))

    return types.int64(base, index), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _poke(_context: Any, base: Any, index: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base, index, value = arguments
        whole = context.cast(builder, value, signature.args[2], types.int64)
        builder.store(whole, _element(builder, base, index))
        return context.get_dummy_value()

    return types.void(base, index, value), codegen


peek: Callable[[int, int], int] = _peek
"""The number at a place of the array at an address."""
poke: Callable[[int, int, int], None] = _poke
"""Write a number to a place of the array at an address."""
