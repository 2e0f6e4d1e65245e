"""Damage to bytes of any format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Damage = Callable[[Random, bytearray], None]

_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
_MAX_SPAN = 64
_MAX_TIMES = 8


def damage(random: Random, content: bytes, words: Sequence[bytes] = ()) -> bytes:
    """Damage bytes in one to eight places.

    Args:
        random: Random numbers.
        content: Bytes.
        words: Tokens of the format to insert or overwrite with.
    """
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, _MAX_TIMES))):
        if words and random.random() < 0.4:
            _word(random, damaged, random.choice(words))
        else:
            random.choice(_KINDS)(random, damaged)
    return bytes(damaged)


def _position(random: Random, content: bytearray) -> int:
    return random.randrange(len(content) + 1)


def _span(random: Random, content: bytearray) -> slice:
    start = _position(random, content)
    return slice(start, start + random.randint(1, _MAX_SPAN))


def _word(random: Random, content: bytearray, word: bytes) -> None:
    start = _position(random, content)
    over = len(word) if random.random() < 0.5 else 0
    content[start : start + over] = word


def _flip(random: Random, content: bytearray) -> None:
    if content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _byte(random: Random, content: bytearray) -> None:
    if content:
        content[random.randrange(len(content))] = random.randrange(256)


def _number(random: Random, content: bytearray) -> None:
    value, width = random.choice(_INTERESTING), random.choice((2, 4, 8))
    start = _position(random, content)
    content[start : start + width] = (value & (1 << 8 * width) - 1).to_bytes(
        width, random.choice(("little", "big"))
    )


def _delete(random: Random, content: bytearray) -> None:
    del content[_span(random, content)]


def _repeat(random: Random, content: bytearray) -> None:
    span = _span(random, content)
    content[span.start : span.start] = content[span] * random.choice((1, 2, 40))


def _move(random: Random, content: bytearray) -> None:
    piece = content[_span(random, content)]
    start = _position(random, content)
    content[start : start + len(piece)] = piece


def _zero(random: Random, content: bytearray) -> None:
    span = _span(random, content)
    content[span] = bytes(len(content[span]))


def _cut(random: Random, content: bytearray) -> None:
    del content[_position(random, content) :]


_KINDS: tuple[Damage, ...] = (_flip, _flip, _byte, _byte, _number, _delete, _repeat, _move, _zero, _cut)
