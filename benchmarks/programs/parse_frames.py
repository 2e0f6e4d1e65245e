"""Parse a trace into a table of its events with polars or DuckDB, in memory.

    parse_frames.py polars|duckdb FILE

A `.ndjson` file has one event per line. Both use every core. Polars infers the types from all events; DuckDB
is given them, with the arguments as text, since its inference fails on names that differ only in case.
"""

import json
import sys
import time

FIELDS = {
    "ph": "VARCHAR",
    "cat": "VARCHAR",
    "name": "VARCHAR",
    "pid": "VARCHAR",
    "tid": "VARCHAR",
    "ts": "DECIMAL(30,3)",
    "dur": "DECIMAL(30,3)",
    "args": "JSON",
}
LARGEST = 4_294_967_295


def polars(path: str) -> int:
    """Events that a data frame of them has."""
    import polars as pl

    if path.endswith(".ndjson"):
        return len(pl.read_ndjson(path, infer_schema_length=None))
    document = pl.read_json(path, infer_schema_length=None)
    return len(document.select(pl.col("traceEvents").explode()).unnest("traceEvents"))


def duckdb(path: str) -> int:
    """Events that a table of them has."""
    import duckdb as db

    events = "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in FIELDS.items()) + ")[]"
    source = (
        f"* FROM read_ndjson('{path}', columns = {json.dumps(FIELDS)})"
        if path.endswith(".ndjson")
        else f"unnest(traceEvents, max_depth := 2) FROM read_json('{path}', "
        f"columns = {{traceEvents: '{events}'}}, maximum_object_size = {LARGEST})"
    )
    db.sql(f"CREATE TABLE events AS SELECT {source}")
    return int(db.execute("SELECT count(*) FROM events").fetchall()[0][0])


def main() -> None:
    """Parse and print."""
    parse = {"polars": polars, "duckdb": duckdb}[sys.argv[1]]
    start = time.perf_counter()
    events = parse(sys.argv[2])
    print(json.dumps({"parse_s": time.perf_counter() - start, "events": events}))


if __name__ == "__main__":
    main()
