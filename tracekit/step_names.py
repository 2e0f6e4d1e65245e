"""Names by which a range marks a step: torch.profiler's own, else what people write."""

from __future__ import annotations

import re
from typing import Final

PROFILER: Final = r"ProfilerStep#(\d{1,18})(?!\d)"
_WORDS = r"(?i:(?:train(?:ing)?|optimizer)?[ _-]?(?:step|iter|iteration|batch)[ _#:=-]{0,3})"
SPOKEN: Final = _WORDS + r"(\d{1,18})$"
"""`step 3`, `Iteration_12`, `train_step=5`; counted only where no step of torch.profiler is marked."""
MARKER: Final = rf"^ProfilerStep#|^{_WORDS}\d{{1,18}}$"
"""Either of them, for those who need no number."""

MARKERS: Final = (re.compile(PROFILER), re.compile(SPOKEN))


def is_marker(name: str) -> bool:
    """Whether a name marks a step.

    Example:
        >>> [is_marker(name) for name in ("ProfilerStep#7", "step 3", "Iteration_12", "stepped", "epoch 2")]
        [True, True, True, False, False]
    """
    return any(pattern.match(name) for pattern in MARKERS)
