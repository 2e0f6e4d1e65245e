"""Read the event tables of an SQLite export of Nsight Systems directly.

    read_export.py rows|pandas FILE

`rows` fetches every row with Python's sqlite3; `pandas` reads each table into a data frame and resolves
string ids.
"""

import json
import sqlite3
import sys
import time

EVENTS = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS")
TEXTS = ("nameId", "textId", "demangledName", "shortName")


def tables(file: sqlite3.Connection) -> list[str]:
    """Names of the tables of events."""
    names = file.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in names if name.startswith(EVENTS)]


def rows(file: sqlite3.Connection) -> int:
    """Number of rows."""
    return sum(sum(1 for _ in file.execute(f"SELECT * FROM {table}")) for table in tables(file))  # noqa: S608


def pandas(file: sqlite3.Connection) -> int:
    """Number of rows of the data frames."""
    import pandas as pd

    texts = pd.read_sql("SELECT id, value FROM StringIds", file).set_index("id")["value"]
    frames = {}
    for table in tables(file):
        frame = pd.read_sql(f"SELECT * FROM {table}", file)  # noqa: S608
        for column in set(TEXTS) & set(frame.columns):
            frame[column] = frame[column].map(texts)
        frames[table] = frame
    return sum(map(len, frames.values()))


def main() -> None:
    """Read and print."""
    read = {"rows": rows, "pandas": pandas}[sys.argv[1]]
    start = time.perf_counter()
    count = read(sqlite3.connect(sys.argv[2]))
    print(json.dumps({"read_s": time.perf_counter() - start, "events": count}))


if __name__ == "__main__":
    main()
