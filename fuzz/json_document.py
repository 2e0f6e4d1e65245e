"""Random changes to JSON documents, including text that is not valid JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fuzz.edge_values import INTEGERS, JSON, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

Position = tuple[Any, Any]
"""A container, and the key or index of a value in it."""


class Raw(str):
    """Text written without quoting."""

    __slots__ = ()


class DuplicateKey(dict[str, Any]):
    """An object whose first key is written again at the end."""


def to_json(value: Any) -> str:
    """Serialize a document.

    Example:
        >>> to_json({"a": [1, Raw("NaN"), "b"]})
        '{"a":[1,NaN,"b"]}'
    """
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        pairs = [f"{json.dumps(str(key))}:{to_json(item)}" for key, item in value.items()]
        if isinstance(value, DuplicateKey) and pairs:
            pairs.append(pairs[0])
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    return json.dumps(value)


def positions(value: Any) -> Iterator[Position]:
    """Position of every value of a document except the root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from positions(item)


def copy(value: Any) -> Any:
    """Deep copy of a document."""
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    return [copy(item) for item in value] if isinstance(value, list) else value


def change_document(random: Random, document: Any, times: int = 1) -> Any:
    """Copy a document with some values replaced, removed, duplicated or renamed."""
    changed = copy(document)
    for _ in range(times):
        found = list(positions(changed))
        if not found:
            break
        container, key = random.choice(found)
        random.choice(_CHANGES)(random, container, key)
    return changed


def edge_value(random: Random) -> Any:
    """An edge value for any position."""
    kind = random.random()
    if kind < 0.5:
        return Raw(random.choice(JSON))
    return random.choice(INTEGERS) if kind < 0.75 else random.choice(TEXTS)


def _replace(random: Random, container: Any, key: Any) -> None:
    container[key] = edge_value(random)


def _remove(_random: Random, container: Any, key: Any) -> None:
    del container[key]


def _duplicate(random: Random, container: Any, key: Any) -> None:
    if isinstance(container, list):
        container.insert(random.randint(0, len(container)), copy(container[key]))
    else:
        container[key] = (
            DuplicateKey(container[key])
            if isinstance(container[key], dict)
            else [container[key], container[key]]
        )


def _rename(random: Random, container: Any, key: Any) -> None:
    if isinstance(container, dict):
        container[random.choice((*container, *TEXTS))] = container.pop(key)
    else:
        container[key], container[-1] = container[-1], container[key]


def _shift(random: Random, container: Any, key: Any) -> None:
    if isinstance(container[key], int | float) and not isinstance(container[key], bool):
        container[key] = random.choice(
            (-container[key], container[key] * 10**6, container[key] + 1, 0, random.choice(INTEGERS))
        )
    else:
        container[key] = edge_value(random)


_CHANGES = (_replace, _replace, _replace, _shift, _remove, _duplicate, _rename)
