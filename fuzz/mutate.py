"""Damage to bytes, whatever they mean: what disks, networks and editors do, and what attackers try."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Damage = Callable[[Random, bytearray], None]

_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
_LONGEST = 64
_TIMES = 8


def damaged(random: Random, content: bytes, words: Sequence[bytes] = ()) -> bytes:
    """The content with one to eight places damaged.

    Args:
        random: What decides.
        content: Any bytes.
        words: Bytes that mean something in this format, to be written over or put between.
    """
    made = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, _TIMES))):
        if words and random.random() < 0.4:
            _word(random, made, random.choice(words))
        else:
            random.choice(_KINDS)(random, made)
    return bytes(made)


def _place(random: Random, made: bytearray) -> int:
    return random.randrange(len(made) + 1)


def _span(random: Random, made: bytearray) -> slice:
    start = _place(random, made)
    return slice(start, start + random.randint(1, _LONGEST))


def _word(random: Random, made: bytearray, word: bytes) -> None:
    start = _place(random, made)
    over = len(word) if random.random() < 0.5 else 0
    made[start : start + over] = word


def _flip(random: Random, made: bytearray) -> None:
    if made:
        made[random.randrange(len(made))] ^= 1 << random.randrange(8)


def _byte(random: Random, made: bytearray) -> None:
    if made:
        made[random.randrange(len(made))] = random.randrange(256)


def _number(random: Random, made: bytearray) -> None:
    value, width = random.choice(_INTERESTING), random.choice((2, 4, 8))
    start = _place(random, made)
    made[start : start + width] = (value & (1 << 8 * width) - 1).to_bytes(
        width, random.choice(("little", "big"))
    )


def _delete(random: Random, made: bytearray) -> None:
    del made[_span(random, made)]


def _repeat(random: Random, made: bytearray) -> None:
    span = _span(random, made)
    made[span.start : span.start] = made[span] * random.choice((1, 2, 40))


def _move(random: Random, made: bytearray) -> None:
    piece = made[_span(random, made)]
    start = _place(random, made)
    made[start : start + len(piece)] = piece


def _zero(random: Random, made: bytearray) -> None:
    span = _span(random, made)
    made[span] = bytes(len(made[span]))


def _cut(random: Random, made: bytearray) -> None:
    del made[_place(random, made) :]


_KINDS: tuple[Damage, ...] = (_flip, _flip, _byte, _byte, _number, _delete, _repeat, _move, _zero, _cut)
