"""JSON documents with one value out of place, written even where the value is no JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fuzz.odd import INTEGERS, JSON, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

Place = tuple[Any, Any]
"""A container, and the key or index of a value in it."""


class Raw(str):
    """Text that is written as it is."""

    __slots__ = ()


class Twice(dict[str, Any]):
    """An object that is written with its first key once more, behind the others."""


def written(value: Any) -> str:
    """JSON text of a document.

    Example:
        >>> written({"a": [1, Raw("NaN"), "b"]})
        '{"a":[1,NaN,"b"]}'
    """
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        pairs = [f"{json.dumps(str(key))}:{written(item)}" for key, item in value.items()]
        if isinstance(value, Twice) and pairs:
            pairs.append(pairs[0])
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def places(value: Any) -> Iterator[Place]:
    """Every value of a document but the outermost."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from places(item)


def copied(value: Any) -> Any:
    """A copy that can be changed."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def changed(random: Random, document: Any, times: int = 1) -> Any:
    """A copy with some values replaced, removed, doubled or renamed."""
    made = copied(document)
    for _ in range(times):
        found = list(places(made))
        if not found:
            break
        box, key = random.choice(found)
        random.choice(_CHANGES)(random, box, key)
    return made


def odd(random: Random) -> Any:
    """A value that is out of place nearly anywhere."""
    kind = random.random()
    if kind < 0.5:
        return Raw(random.choice(JSON))
    return random.choice(INTEGERS) if kind < 0.75 else random.choice(TEXTS)


def _replace(random: Random, box: Any, key: Any) -> None:
    box[key] = odd(random)


def _remove(_random: Random, box: Any, key: Any) -> None:
    del box[key]


def _double(random: Random, box: Any, key: Any) -> None:
    if isinstance(box, list):
        box.insert(random.randint(0, len(box)), copied(box[key]))
    else:
        box[key] = Twice(box[key]) if isinstance(box[key], dict) else [box[key], box[key]]


def _rename(random: Random, box: Any, key: Any) -> None:
    if isinstance(box, dict):
        box[random.choice((*box, *TEXTS))] = box.pop(key)
    else:
        box[key], box[-1] = box[-1], box[key]


def _shift(random: Random, box: Any, key: Any) -> None:
    if isinstance(box[key], int | float) and not isinstance(box[key], bool):
        box[key] = random.choice((-box[key], box[key] * 10**6, box[key] + 1, 0, random.choice(INTEGERS)))
    else:
        box[key] = odd(random)


_CHANGES = (_replace, _replace, _replace, _shift, _remove, _double, _rename)
