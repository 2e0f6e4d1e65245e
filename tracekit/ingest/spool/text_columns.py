"""Text columns over all parts of a table, and limits of what readers accept (`docs/limits.md`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain, count
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.errors import UnusableInputError
from tracekit.runs import redaction

Codes: TypeAlias = npt.NDArray[np.int32]

LATEST_NS: Final = 1 << 61
"""Limit of times (the year 2043), durations and the base time of a file, in ns: all sums and differences of
them, over all ranks of a job, fit 64 bits."""

EARLIEST_INSTANT_NS: Final = 0
"""Limit of times of memory events and counter samples, in ns: the run's t0 is the start of its earliest
interval, and an instant must not precede it by more than `LATEST_NS`."""

MAX_RANKS: Final = 1 << 20
"""Limit of ranks of a job."""

MAX_TEXT_BYTES: Final = 1 << 30
"""Limit of the bytes of a column's distinct texts: they are kept in memory, in an array of at most 2 GiB."""

MAX_REPAIRED_BYTES: Final = 32 << 20
"""Limit of the bytes of an invalid top level that is repaired: repair takes a multiple of them in memory, and
without it only metadata is lost."""

MAX_VALUE_BYTES: Final = 256 << 20
"""Limit of the bytes of a value in SQLite, such as the joined texts of a chunk; then chunks are smaller."""

MAX_STEPS: Final = 4_000_000_000
"""Limit of the steps of SQLite's virtual machine per query, which takes some hundred per row."""

HARMLESS_ROWS: Final = 10_000_000
"""Rows that a Parquet file of any size may have."""

MAX_ROWS_PER_BYTE: Final = 16
"""Limit of further rows per byte of a Parquet file; times alone take more than a byte per row."""

MAX_GROUP_BYTES: Final = 4 << 30
"""Limit of the unpacked bytes of a row group in a Parquet file; nsys writes 8 MB per column."""

LISTED: Final = 10
"""Limit of names listed in a message."""


class Strings(msgspec.Struct, frozen=True, dict=True):
    """A text column over all parts of a table.

    Attributes:
        values: Its distinct values, sorted, so that codes do not depend on the file's order.
        recode: For each part, the new code of each of its codes, then -1 for null.
    """

    values: list[str]
    recode: list[Codes]

    @cached_property
    def encoded(self) -> list[bytes]:
        """Return the values in UTF-8."""
        return [value.encode() for value in self.values]

    def codes(self, part: int, part_codes: Codes) -> Codes:
        """Convert codes of a part to codes of `values`; -1 for null."""
        return self.recode[part].take(part_codes)

    def matching(self, matches: Callable[[str], object]) -> npt.NDArray[np.bool_]:
        """Return a mask of the values that match a pattern, with a False at the end for the code -1."""
        mask = np.zeros(len(self.values) + 1, np.bool_)
        mask[:-1] = np.fromiter(map(bool, map(matches, self.values)), np.bool_, len(self.values))
        return mask

    def among(self, wanted: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return a mask of the values that are among some, with a False at the end for the code -1."""
        return self.matching(frozenset(wanted).__contains__)


NO_STRINGS = Strings([], [])
"""The text column of a table without rows."""


class StringsBuilder:
    """Builder of a text column from its parts."""

    def __init__(self) -> None:
        self._known: defaultdict[bytes, int] = defaultdict(count().__next__)  # numbers new values
        self._codes_of_parts: list[Codes] = []
        self._bytes = 0

    def add(self, texts: Sequence[bytes]) -> None:
        """Add the values of the next part, in UTF-8 and in the order of its codes.

        Raises:
            UnusableInputError: The distinct values exceed `MAX_TEXT_BYTES`.
        """
        numbers = map(self._known.__getitem__, texts)
        self._codes_of_parts.append(np.fromiter(numbers, np.int32, len(texts)))
        self._bytes += sum(map(len, texts))
        if self._bytes > MAX_TEXT_BYTES:  # of all parts, which may have the same values
            self._bytes = sum(map(len, self._known))
        if self._bytes > MAX_TEXT_BYTES:
            message = f"the trace has over {MAX_TEXT_BYTES >> 30} GiB of distinct strings in one column"
            raise UnusableInputError(message, hint="record fewer steps, or disable stacks (with_stack=False)")

    def build(self) -> Strings:
        """Return the column."""
        redacted = redaction.redact_texts([value.decode() for value in self._known])
        values = sorted(dict.fromkeys(redacted))  # in their order, as numbered names come nearly sorted
        code_of = {value: place for place, value in enumerate(values)}
        place = np.fromiter(chain(map(code_of.__getitem__, redacted), [-1]), np.int32, len(redacted) + 1)
        return Strings(values, [place[np.append(codes, np.int32(-1))] for codes in self._codes_of_parts])
