"""What is found of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is wrong; scripts may rely on the words."""

    METADATA = "metadata"
    """`run.json` is missing, unreadable, of another version, or not as it was sealed."""
    MISSING = "missing"
    """A file that `run.json` names is not there."""
    UNKNOWN = "unknown"
    """A table that `run.json` does not name, or a link where there should be a file."""
    SIZE = "size"
    """The files of a table do not have the bytes that were stored."""
    DIGEST = "digest"
    """The SHA-256 is another one: the content is not what was stored."""
    PARQUET = "parquet"
    """A file does not open, or a page of it cannot be read."""
    ROWS = "rows"
    """Another number of rows than was stored."""
    COLUMNS = "columns"
    """Other columns than the schema has, or another version of it."""
    ORDER = "order"
    """Rows are not sorted by time."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """One thing that is wrong with a run.

    Attributes:
        kind: What.
        table: Of which table; empty where it is of none.
        told: In a sentence.
    """

    kind: Kind
    told: str
    table: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found of one run.

    Attributes:
        run: Name of its folder.
        tables: How many tables were checked.
        rows: Their rows, as stored.
        bytes: Bytes of Parquet on disk.
        damage: What is wrong; empty where the run is whole.
    """

    run: str
    tables: int
    rows: int
    bytes: int
    damage: tuple[Damage, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage
