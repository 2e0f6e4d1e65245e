"""What was noticed of many traces of a job, said once: 256 ranks would say it 256 times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.meta import Diagnostic

FEW = 8
"""So many diagnostics of one kind are said one by one."""
EACH = "`tracekit show RUN --format csv` lists each"
_SEPARATOR = ": "


def together(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Diagnostics in their order, those of one level and code as one where they are more than `FEW`.

    Args:
        diagnostics: A run's, whose messages begin with the trace that they are about, as in `a.json: cut`.

    Example:
        >>> from tracekit.meta import Diagnostic, Level
        >>> many = [Diagnostic(Level.WARN, "cut", f"{rank}.json: ends early") for rank in range(9)]
        >>> [one.message for one in together(many)]
        ['9 traces, 0.json to 8.json: ends early']
        >>> len(together(many[:8]))
        8
    """
    kinds: dict[tuple[str, str], list[Diagnostic]] = {}
    for one in diagnostics:
        kinds.setdefault((one.level, one.code), []).append(one)
    return [said for kind in kinds.values() for said in (kind if len(kind) <= FEW else [_one(kind)])]


def _one(kind: Sequence[Diagnostic]) -> Diagnostic:
    first, last = kind[0], kind[-1]
    about, separator, what = first.message.partition(_SEPARATOR)
    if separator and all(one.message.partition(_SEPARATOR)[2] == what for one in kind):
        until = last.message.partition(_SEPARATOR)[0]
        message = f"{len(kind):,} traces, {about} to {until}{_SEPARATOR}{what}"
    else:
        message = f"{first.message}; and {len(kind) - 1:,} more of this kind: {EACH}"
    return replace(first, message=message)
