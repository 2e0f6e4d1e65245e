"""Bytes as the machine sees them: a byte, a word, or the places among some bytes where something stands.

Numba has no type for an address, and none for a vector; these few functions are LLVM's own instructions,
which it lowers to what the processor has. They read up to `WIDEST` bytes from an address on: there must be
room for that behind the end of a text. All numbers are int64, and wrap.
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
"""Bytes of a string or of white space that are looked at at once: most are shorter."""
WIDEST = 32
"""Bytes of a number, or of two texts that are compared, that are looked at at once."""
WORD = 8
"""Bytes of a word."""
BAD = -1
"""The address behind something that is not valid JSON, or that only the reference decoder handles."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
_QUOTE, _BACKSLASH, _SPACE, _ZERO, _NINE = 0x22, 0x5C, 0x20, 0x30, 0x39
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


def _bytes(builder: Any, address: Any, width: int) -> Any:
    return _loaded(builder, address, ir.VectorType(_BYTE, width))


def _compared(builder: Any, how: str, text: Any, value: int) -> Any:
    """Each byte compared with a value."""
    everywhere = ir.Constant(text.type, [ir.Constant(_BYTE, value)] * text.type.count)
    return builder.icmp_unsigned(how, text, everywhere)


def _places(builder: Any, hits: Any) -> Any:
    """One bit for each comparison, the first the lowest."""
    return builder.zext(builder.bitcast(hits, ir.IntType(hits.type.count)), _WORD)


def _special(builder: Any, address: Any) -> Any:
    text = _bytes(builder, address, WIDE)
    quote = _compared(builder, "==", text, _QUOTE)
    escape = _compared(builder, "==", text, _BACKSLASH)
    control = _compared(builder, "<", text, _SPACE)
    return _places(builder, builder.or_(builder.or_(quote, escape), control))


def _solid(builder: Any, address: Any) -> Any:
    text = _bytes(builder, address, WIDE)
    solid = _compared(builder, "!=", text, _BLANKS[0])
    for blank in _BLANKS[1:]:
        solid = builder.and_(solid, _compared(builder, "!=", text, blank))
    return _places(builder, solid)


def _no_digits(builder: Any, address: Any) -> Any:
    text = _bytes(builder, address, WIDEST)
    return _places(
        builder, builder.or_(_compared(builder, "<", text, _ZERO), _compared(builder, ">", text, _NINE))
    )


def _differences(builder: Any, left: Any, right: Any) -> Any:
    texts = [_bytes(builder, address, WIDEST) for address in (left, right)]
    return _places(builder, builder.icmp_unsigned("!=", *texts))


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
no_digits: Callable[[int], int] = _instruction(types.int64, _no_digits)
"""Where, in `WIDEST` bytes, there is no digit."""
lowest: Callable[[int], int] = _instruction(types.int64, _lowest)
"""Number of the lowest bit that is set; there must be one."""
bits: Callable[[float], int] = _instruction(types.int64, _bits)
"""A float64 as the int64 of the same bits."""


@intrinsic  # type: ignore[untyped-decorator]
def _differ(_context: Any, left: Any, right: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return _differences(builder, *arguments)

    return types.int64(left, right), codegen


differences: Callable[[int, int], int] = _differ
"""Where, in `WIDEST` bytes, two texts differ."""


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


@compiled
def same(left: int, right: int, length: int) -> bool:
    """Whether two texts of a length are the same."""
    while length >= WIDEST:
        if differences(left, right) != 0:
            return False
        left += WIDEST
        right += WIDEST
        length -= WIDEST
    return differences(left, right) & ((1 << length) - 1) == 0
