"""Parse a trace with one parser and discard the result.

    parse_json.py PARSER FILE [BOUNDS]

Gzipped files are decompressed by Python's gzip. `read_s` is reading and decompressing, `parse_s` the parser
alone; `events` is the number of events it parsed.
"""

import gzip
import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import io


def opened(path: str) -> IO[bytes]:
    """The file's text, inflated where its name says so."""
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.endswith(".gz") else Path(path).open("rb")


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Its result, the seconds it took, and the processor's."""
    start, busy = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - start, time.process_time() - busy


def fill(file: IO[bytes], room: memoryview) -> None:
    """Read as much as there is room for."""
    done = 0
    while done < len(room):
        done += cast("io.BufferedIOBase", file).readinto(room[done:])


def whole(loads: Callable[[bytes], Any], path: str) -> dict[str, float]:
    """Read all, then parse all at once."""
    with opened(path) as file:
        text, read_s, _ = timed(file.read)
    document, parse_s, parse_cpu_s = timed(lambda: loads(text))
    events = len(document["traceEvents"])
    return {"read_s": read_s, "parse_s": parse_s, "parse_cpu_s": parse_cpu_s, "events": events}


def chunked(path: str, borders: str) -> dict[str, float]:
    """Parse whole events in pieces of some MB with one simdjson parser, on one core, read into one buffer."""
    import simdjson

    pieces = json.loads(Path(borders).read_text())
    buffer = bytearray(b"[") + bytes(1 + max(end - start for start, end in pieces))
    parser, place = simdjson.Parser(), 0
    total = {"read_s": 0.0, "parse_s": 0.0, "parse_cpu_s": 0.0, "events": 0}
    with opened(path) as file:
        for start, end in pieces:
            file.read(start - place)
            length, place = end - start, end
            _, read_s, _ = timed(partial(fill, file, memoryview(buffer)[1 : 1 + length]))
            buffer[1 + length] = ord("]")
            array, parse_s, parse_cpu_s = timed(partial(parser.parse, memoryview(buffer)[: length + 2]))
            total["read_s"] += read_s
            total["parse_s"] += parse_s
            total["parse_cpu_s"] += parse_cpu_s
            total["events"] += len(array)
            del array
    return total


def main() -> None:
    """Parse and print."""
    name, path, *borders = sys.argv[1:]
    if name == "simdjson-chunks":
        print(json.dumps(chunked(path, *borders)))
        return
    loaders: dict[str, Callable[[], Callable[[bytes], Any]]] = {
        "json": lambda: json.loads,
        "orjson": lambda: importlib.import_module("orjson").loads,
        "msgspec": lambda: importlib.import_module("msgspec.json").decode,
        "simdjson": lambda: importlib.import_module("simdjson").Parser().parse,
    }
    print(json.dumps(whole(loaders[name](), path)))


if __name__ == "__main__":
    main()
