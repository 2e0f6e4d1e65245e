"""Parse and build addresses. The whole UI state is in the address.

An address is the page's name and a query, as in `/timeline?run=ID&rank=0&from=100&to=900`. Query parameters
that are not a field of `View` are options of the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tracekit.schema import TABLES

HOME = "runs"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ROW = re.compile(r"([a-z_]{1,40}):(\d{1,12})")
_LONGEST = 200
_NUMBER = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True, kw_only=True)
class View:
    """The state in an address.

    Attributes:
        page: Name of the page.
        run: Id of the run; empty for the latest.
        base: Id of the baseline run; empty for none.
        rank: Only this rank; None for all.
        device: Only this device; None for all.
        start_ns: Start of the visible range, relative to the run's t0; None for the start of the capture.
        end_ns: End of the visible range; None for the end of the capture.
        row: The selected row, such as `device_intervals:7`; empty for none.
        options: Page-specific parameters, by name.

    Example:
        >>> view = View.parse("/timeline", "?run=r1&from=100&to=900&lanes=gpu")
        >>> view.page, view.run, view.start_ns, view.options
        ('timeline', 'r1', 100, {'lanes': 'gpu'})
        >>> view.href(page="overview", start_ns=None, end_ns=None, options={})
        '/overview?run=r1'
    """

    page: str = HOME
    run: str = ""
    base: str = ""
    rank: int | None = None
    device: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    row: str = ""
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, path: str | None, search: str | None) -> View:
        """Parse an address; malformed parameters are ignored."""
        page = (path or "").strip("/") or HOME
        words = {name: value[:_LONGEST] for name, value in parse_qsl((search or "").lstrip("?"))}
        row = words.pop("row", "")
        return cls(
            page=page if _NAME.fullmatch(page) else "",
            run=words.pop("run", ""),
            base=words.pop("base", ""),
            rank=_integer(words.pop("rank", "")),
            device=_integer(words.pop("device", "")),
            start_ns=_integer(words.pop("from", "")),
            end_ns=_integer(words.pop("to", "")),
            row=row if selected(row) else "",
            options={name: value for name, value in words.items() if _NAME.fullmatch(name)},
        )

    def search(self) -> str:
        """Return the query string with the question mark; empty if all fields have defaults."""
        words = {
            "run": self.run,
            "base": self.base,
            "rank": self.rank,
            "device": self.device,
            "from": self.start_ns,
            "to": self.end_ns,
            "row": self.row,
            **self.options,
        }
        query = urlencode({name: value for name, value in words.items() if value not in {None, ""}}, safe=":")
        return f"?{query}" if query else ""

    def href(self, **changes: Any) -> str:
        """Return the address of this view with some fields changed.

        Args:
            changes: Fields by name, as in `dataclasses.replace`.
        """
        changed = replace(self, **changes)
        return f"/{changed.page}{changed.search()}"

    def elsewhere(self, page: str, **changes: Any) -> str:
        """Return the address of another page with the same runs, rank and device."""
        other = replace(self, page=page, start_ns=None, end_ns=None, row="", options={})
        return other.href(**changes)


def _integer(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def selected(row: str) -> tuple[str, int] | None:
    """Parse a selected row into table and row id; None if it is invalid.

    Example:
        >>> selected("device_intervals:7"), selected("passwd:1")
        (('device_intervals', 7), None)
    """
    match = _ROW.fullmatch(row)
    return (match[1], int(match[2])) if match and match[1] in TABLES else None
