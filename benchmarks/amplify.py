"""Make a large trace from a small one by repeating its events, shifted in time, with fresh ids."""

from __future__ import annotations

import argparse
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

IDS = ("correlation", "External id", "external id", "Ev Idx", "Python id", "Python parent id")
STEP = "ProfilerStep#"


def amplify(source: Path, target: Path, size: int) -> int:
    """Write copies of a trace until the file has about `size` bytes.

    Args:
        source: A Kineto trace, plain or gzipped.
        target: The file to write, formatted as Kineto does.
        size: Bytes to reach.

    Returns:
        Number of events written.
    """
    events = _events(source)
    timed = [event for event in events if event.get("ph") != "M" and "ts" in event]
    period = _nanoseconds(max(e["ts"] + e.get("dur", 0) for e in timed) - min(e["ts"] for e in timed)) + 1000
    fresh = 1 + max(
        (v for e in timed for k in IDS if isinstance(v := e.get("args", {}).get(k), int)), default=0
    )
    steps = 1 + max((int(e["name"].removeprefix(STEP)) for e in timed if _is_step(e)), default=0)
    count = 0
    with target.open("w") as out:
        out.write('{\n  "schemaVersion": 1,\n  "traceEvents": [\n')
        copy = 0
        while out.tell() < size:
            for event in timed:
                _write(out, _shifted(event, copy * period, copy * fresh, copy * steps), first=count == 0)
                count += 1
            copy += 1
        out.write('\n  ],\n  "traceName": "amplified"\n}\n')
    return count


def _events(source: Path) -> list[dict[str, Any]]:
    data = source.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    parsed = json.loads(text, parse_float=Decimal)
    events: list[dict[str, Any]] = parsed if isinstance(parsed, list) else parsed["traceEvents"]
    return events


def _nanoseconds(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def _is_step(event: dict[str, Any]) -> bool:
    return str(event.get("name", "")).startswith(STEP)


def _shifted(event: dict[str, Any], later: int, fresh: int, steps: int) -> dict[str, Any]:
    arguments = {
        key: value + fresh if key in IDS and isinstance(value, int) and value else value
        for key, value in event.get("args", {}).items()
    }
    name = f"{STEP}{int(event['name'].removeprefix(STEP)) + steps}" if _is_step(event) else event.get("name")
    time = _nanoseconds(event["ts"]) + later
    return {**event, "name": name, "ts": time, "args": arguments}


def _write(out: TextIO, event: dict[str, Any], *, first: bool) -> None:
    fields = []
    for key, value in event.items():
        if key == "ts":
            fields.append(f'"ts": {value // 1000}.{value % 1000:03d}')
        elif key == "args":
            inside = ",\n      ".join(f'"{name}": {_json(item)}' for name, item in value.items())
            fields.append(f'"args": {{\n      {inside}\n    }}')
        else:
            fields.append(f'"{key}": {_json(value)}')
    out.write(("" if first else ",\n") + "  {\n    " + ", ".join(fields) + "\n  }")


def _json(value: Any) -> str:
    return str(value) if type(value) in (int, Decimal) else json.dumps(value, default=str)


def command(amplified: Callable[[Path, Path, int], int], *, unit: str, description: str | None) -> None:
    """Amplify one file from the command line.

    Args:
        amplified: Writes the target from the source until it has so many bytes; returns what it wrote.
        unit: What that counts.
        description: Of the command.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--mb", type=int, default=1000)
    options = parser.parse_args()
    print(amplified(options.source, options.target, options.mb * 1_000_000), unit)


if __name__ == "__main__":
    command(amplify, unit="events", description=__doc__)
