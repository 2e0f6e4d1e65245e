"""What one run of a command took, or why it came to nothing."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a finished command took.

    Attributes:
        wall_s: Seconds from start to end.
        cpu_s: CPU seconds of the process and of all that it started and waited for.
        peak_mb: The most memory, MB: of a process alone what the kernel counted, of several the largest
            sum of their proportional shares that was seen.
        told: What the command measured inside of itself, by name; the name ends in the unit.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    told: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A command that did not finish.

    Attributes:
        why: In one line: its last message, or the limit that it passed.
    """

    why: str
