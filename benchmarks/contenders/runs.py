"""Who answers questions about an imported run: every analysis by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.commands import program
from tracekit import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.inputs.runs import Imported
    from benchmarks.runner import Contender

OPENING, EVERY = "(open the run)", "(all of them)"
_SPECIAL = {OPENING: ("-", "starts Python and opens the run"), EVERY: ("*", "what `tracekit findings` does")}


def contenders(imported: Imported, names: Sequence[str] = ()) -> Sequence[Contender]:
    """Every analysis, opening alone, and all of them at once.

    Args:
        imported: What they read.
        names: Only analyses with one of these in their name; all where empty.
    """
    found = []
    every = registry.names(registry.ANALYSES)
    chosen = [name for name in every if not names or any(word in name for word in names)]
    for name in (OPENING, *chosen, EVERY):
        asked, does = _SPECIAL.get(name, (name, "opens the run and does the analysis"))
        arguments = (imported.store, imported.run, asked)
        found.append(program(name, does, "analyze_run.py", *arguments, against=""))
    return found
