"""What is to be measured, and how."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.parts.part import Case
from benchmarks.runner import interleaved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.peers import Environment
    from benchmarks.runner import Contender, Limits


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The choices of one call of the command.

    Attributes:
        sizes: MB of the inputs, rising.
        rounds: How often everybody runs on each.
        folder: Where inputs, peers and what runs leave behind are kept.
        limits: Where a run is ended.
        peers: Where each peer is installed.
        source: A Kineto trace to amplify in place of the built-in ones; None for those.
        export: A SQLite export to amplify in place of the simulated one; None for that.
        as_it_is: Whether those are large already, and are measured themselves.
        only: Parts of names; a contender whose name has none of them is left out. Empty for everybody.
        tell: Told how far it is.
    """

    sizes: tuple[float, ...]
    rounds: int
    folder: Path
    limits: Limits
    peers: Mapping[str, Environment]
    source: Path | None = None
    export: Path | None = None
    as_it_is: bool = False
    only: tuple[str, ...] = ()
    tell: Callable[[str], None] = print

    @property
    def inputs(self) -> Path:
        """The folder of the inputs."""
        place = self.folder / "inputs"
        place.mkdir(parents=True, exist_ok=True)
        return place

    def case(self, series: str, size: int, events: int, contenders: Sequence[Contender]) -> Case:
        """Measure everybody on one input.

        Args:
            series: What it has in common with inputs of other sizes.
            size: Bytes of its text or file.
            events: How many it holds.
            contenders: Who takes part.
        """
        self.tell(f"{series}: {size / 1e6:,.1f} MB, {events:,} events")
        chosen = [one for one in contenders if self._asked(one)]
        scratch = self.folder / f"scratch-{os.getpid()}"
        rows = interleaved(
            chosen,
            rounds=self.rounds,
            scratch=scratch,
            limits=self.limits,
            tell=lambda text: self.tell("  " + text),
        )
        return Case(series=series, size=size, events=events, rows=tuple(rows))

    def _asked(self, one: Contender) -> bool:
        return not self.only or not one.against or any(word in one.name for word in self.only)
