"""Names of ranges that say more than their text: marks of steps, and pauses of Python's garbage collector."""

from __future__ import annotations

import re
from typing import Final

COLLECTION: Final = "Garbage collection: generation "
"""Begin of the names of pauses of Python's collector, which `tracekit.recording.agent.host_watch` records."""
PROFILER: Final = r"ProfilerStep#(\d{1,18})(?!\d)"
_WORDS = r"(?i:(?:train(?:ing)?|optimizer)?[ _-]?(?:step|iter|iteration|batch)[ _#:=-]{0,3})"
SPOKEN: Final = _WORDS + r"(\d{1,18})$"
"""`step 3`, `Iteration_12`, `train_step=5`; counted only where no step of torch.profiler is marked."""
SERVING: Final = r"execute_(?:\d+_)?context_\d+\(|step\[[A-Z_\d]+ bs=\d|\[Executor\] _forward_step \d+: "
"""How the steps of vLLM, SGLang and TensorRT-LLM begin; `tracekit.ingest.link.serving` reads them."""
MARKER: Final = rf"^ProfilerStep#|^{_WORDS}\d{{1,18}}$|^(?:{SERVING})"
"""Any of the patterns, without the number."""

WARM_UP: Final = r"(?i)warm[-_ ]?up"
"""Names of ranges in which a program warms up."""
MARKERS: Final = (re.compile(PROFILER), re.compile(SPOKEN))
_SERVED: Final = re.compile(SERVING)


def is_marker(name: str) -> bool:
    """Whether a name marks a step.

    Example:
        >>> [is_marker(name) for name in ("ProfilerStep#7", "step 3", "Iteration_12", "stepped", "epoch 2")]
        [True, True, True, False, False]
        >>> [is_marker(name) for name in ("step[DECODE bs=32]", "execute_context_1(64)_generation_0(0)")]
        [True, True]
    """
    return any(pattern.match(name) for pattern in (*MARKERS, _SERVED))
