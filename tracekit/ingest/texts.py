"""Limits of what readers take in: each with its reason; `docs/limits.md` tells what is done beyond them."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.runs import scrubbing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt


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


if TYPE_CHECKING:
    Codes = npt.NDArray[np.int32]


class Strings(msgspec.Struct, frozen=True, dict=True):
    """One text column over all parts.

    Attributes:
        values: Its distinct values, sorted, so that codes do not depend on the file's order.
        recode: For each part what its own codes become; one more stays -1, for null's code picks it.
    """

    values: list[str]
    recode: list[Codes]

    @cached_property
    def encoded(self) -> list[bytes]:
        """The values in UTF-8."""
        return [value.encode() for value in self.values]

    def codes(self, part: int, own: Codes) -> Codes:
        """Rows of a part, given as its own codes, as codes into `values`, -1 for null."""
        return self.recode[part].take(own)

    def matching(self, matches: Callable[[str], object]) -> npt.NDArray[np.bool_]:
        """Which values match; one more, for null, does not, so that a code of -1 picks it."""
        return np.array([*(bool(matches(value)) for value in self.values), False], np.bool_)

    def among(self, wanted: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Which values are among these; one more, for null, is not."""
        return self.matching(frozenset(wanted).__contains__)


NO_STRINGS = Strings([], [])
"""A text column of a table without rows."""


class _Numbers(dict[bytes, int]):
    """Numbers distinct values as they come."""

    def __missing__(self, value: bytes) -> int:
        self[value] = len(self)
        return len(self) - 1


class Collected:
    """The values of a text column, collected part by part."""

    def __init__(self) -> None:
        self._known = _Numbers()
        self._seen: list[Codes] = []
        self._bytes = 0

    def add(self, texts: Sequence[bytes]) -> None:
        """Add the next part's values in UTF-8, in the order of its codes.

        Raises:
            UnusableInputError: They would not fit into memory, or into one array.
        """
        numbers = map(self._known.__getitem__, texts)
        self._seen.append(np.fromiter(numbers, np.int32, len(texts)))
        self._bytes += sum(map(len, texts))
        if self._bytes > MOST_TEXT_BYTES:
            self._weigh()

    def _weigh(self) -> None:
        """Parts may have the same values: what counts is what is kept of them."""
        self._bytes = sum(map(len, self._known))
        if self._bytes > MOST_TEXT_BYTES:
            raise UnusableInputError(
                f"the trace has over {MOST_TEXT_BYTES >> 30} GiB of distinct strings in one column",
                hint="record fewer steps, or disable stacks (with_stack=False)",
            )

    def strings(self) -> Strings:
        """The values of all parts, as they may be stored."""
        told = scrubbing.texts([value.decode() for value in self._known])
        values = sorted(set(told))
        at = {value: place for place, value in enumerate(values)}
        place = np.fromiter(chain(map(at.__getitem__, told), [-1]), np.int32, len(told) + 1)
        return Strings(values, [place[np.append(codes, np.int32(-1))] for codes in self._seen])
