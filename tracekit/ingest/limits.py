"""Limits of what readers take in: each with its reason; `docs/limits.md` tells what is done beyond them."""

from __future__ import annotations

from typing import Final

LATEST_NS: Final = 1 << 61
"""Times are less than this far from zero (the year 2043), and so are durations and the instant that the times
of a file count from: then every sum and every difference of them, over all ranks of a job, fits 64 bits."""

MOST_RANKS: Final = 1 << 20
"""Ranks of a job are less than this: more GPUs work nowhere together."""

MOST_TEXT_BYTES: Final = 1 << 30
"""Bytes of the distinct texts of one column: they are kept in memory, and an array of text ends at 2 GiB."""

MOST_REPAIRED_BYTES: Final = 32 << 20
"""Bytes of what stands around the events that are repaired where they are no JSON: that takes a multiple of
them in memory, and all that is lost is what the file says about itself."""

MOST_VALUE_BYTES: Final = 256 << 20
"""Bytes of one value that SQLite may make: joined texts of a chunk of rows; fewer rows are asked for then."""

MOST_STEPS: Final = 4_000_000_000
"""Steps of SQLite's machine for one question, which takes some hundred for each of 131,072 rows."""

HARMLESS_ROWS: Final = 10_000_000
"""Rows that any Parquet file may have."""

MOST_ROWS_PER_BYTE: Final = 16
"""Rows for each byte of a Parquet file beyond that: the times of recorded events alone take bytes a row."""

MOST_GROUP_BYTES: Final = 4 << 30
"""Bytes that a row group of a Parquet file may take unpacked: those of the tool have 8 MB for each column."""

LISTED: Final = 10
"""Names that a message lists at most."""
