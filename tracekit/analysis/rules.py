"""What an analysis may advise: rules with their thresholds, and the findings that they give.

A rule is a condition, such as "a launch takes longer than a kernel"; a finding is an instance in a run, with
advice, the time that it would save, and the rows that show it. `savings.Budget.finding` creates findings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tracekit.runs.display import Displayed
from tracekit.runs.text import human


class Severity(StrEnum):
    """Severity of a finding: by the share of a step that it saves (`savings`), `info` without a saving."""

    INFO = "info"
    WARN = "warn"
    HIGH = "high"


class Basis(StrEnum):
    """Whether the time that a finding saves was measured or estimated."""

    MEASURED = "measured"
    ESTIMATED = "estimated"


class Bottleneck(StrEnum):
    """What the time of a run, or of a part of it, is spent on; the parts of the verdict on a run.

    `STRAGGLERS` is waiting for slower ranks, `QUEUED` an idle device with work queued, `HOST` work of the CPU
    between launches, `START_UP` loading, compiling and choosing algorithms, which does not recur, `UNKNOWN`
    idle time whose cause is not recorded, and `EDGES` the time before the first and after the last work.
    """

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    STRAGGLERS = "stragglers"
    COPIES = "memory copies"
    INPUT = "input"
    LAUNCH = "kernel launches"
    HOST = "host work"
    START_UP = "start-up"
    SYNC = "synchronization"
    QUEUED = "queued work"
    PROFILER = "the profiler"
    UNKNOWN = "unknown"
    EDGES = "edges of the capture"


@dataclass(frozen=True)
class Rule:
    """Condition under which an analysis gives advice.

    Each number of the condition is in `thresholds`, from which the texts are made and which the code of the
    rule reads: `rule["min_blocks"]`.

    Attributes:
        code: Stable identifier, the code of its findings.
        states: The condition. `{name}` stands for the threshold of that name.
        why: Why the thresholds are what they are, with the same placeholders.
        bound: What the time of its findings is spent on; None if they concern no part of the window. The
            verdict on a run names the findings first whose rule has the bottleneck of the run here.
        thresholds: Numbers of the condition by name. A name starts with `min_` or `max_` and ends in its
            unit as names of columns do: `_ns`, `_bytes`, `_share`; others are counts or ratios.

    Example:
        >>> rule = Rule("small", "under {max_ns}", "a launch takes longer", thresholds={"max_ns": 2_500})
        >>> rule.condition, rule["max_ns"]
        ('under 2.5 µs', 2500)
    """

    code: str
    states: str
    why: str
    bound: Bottleneck | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", dict(self.thresholds))  # no two rules share one mapping

    def __getitem__(self, threshold: str) -> float:
        return self.thresholds[threshold]

    @property
    def condition(self) -> str:
        """The condition with its thresholds."""
        return self._fill(self.states)

    @property
    def reason(self) -> str:
        """Why the thresholds are what they are, with the thresholds."""
        return self._fill(self.why)

    def _fill(self, template: str) -> str:
        return template.format_map({name: describe(name, value) for name, value in self.thresholds.items()})


_TRAILING_ZEROS = re.compile(r"\.0+(?= )|(?<=\.\d)0+(?= )")
"""Zeros at the end of the decimals of a number with a unit: all of `.00`, or the last of `.50`."""


def describe(name: str, value: float) -> str:
    """Return the text of a threshold in the unit that its name ends in.

    Args:
        name: Name of the threshold.
        value: Its value: ns or bytes, from 0 to 1 for a share, else a count or ratio.

    Example:
        >>> describe("min_dur_ns", 20_000), describe("min_saving_share", 0.01), describe("min_bytes", 1 << 20)
        ('20 µs', '1%', '1 MiB')
        >>> describe("max_ns", 1_500), describe("max_ns", 500), describe("max_bytes", 100)
        ('1.5 µs', '500 ns', '100 B')
    """
    unit = name.rpartition("_")[2]
    if unit == "share":
        return f"{100 * value:.3g}%"
    if unit in {"ns", "bytes"}:
        return _TRAILING_ZEROS.sub("", human(value, unit))
    return f"{value:,g}"


@dataclass(frozen=True)
class Finding(Displayed):
    """Advice of a rule with its evidence.

    Attributes:
        code: Code of the rule that gave it.
        severity: How much it matters.
        title: What is the case, in one line.
        advice: What to change, naming the line or op.
        saving_ns_per_step: Time a step would save, or the capture where no steps are marked; None where no
            number can be given.
        basis: Whether the saving was measured or estimated, None without a saving.
        how: How the saving was worked out.
        confidence: From 0 to 1: 0.9 and more where the cause was seen to act, less where it is inferred.
        evidence: Row ids that show it, by table of the run (`device_intervals`, `host_intervals`): those with
            most of the time first, at most `EVIDENCE_ROWS` of each table.
        remedies: Findings of the same time that advise something else; set when all findings are ranked.
    """

    code: str
    severity: Severity
    title: str
    advice: str
    saving_ns_per_step: int | None = None
    basis: Basis | None = None
    how: str = ""
    confidence: float = 1.0
    evidence: dict[str, list[int]] = field(default_factory=dict)
    remedies: tuple[Finding, ...] = ()

    def without_saving(self, reason: str) -> Finding:
        """Return it as information, with the reason why it has no saving."""
        return replace(self, severity=Severity.INFO, saving_ns_per_step=None, basis=None, how=reason)

    @property
    def saves(self) -> str:
        """The verb of the saving, which tells an upper bound.

        Example:
            >>> Finding("tiny", Severity.WARN, "Short kernels", "Fuse them", 9, how="upper bound: all").saves
            'saves up to'
        """
        return "saves up to" if "upper bound" in self.how else "saves"

    def __repr__(self) -> str:
        """Describe the finding in one line.

        Example:
            >>> Finding("tiny", Severity.WARN, "Half of the kernels are short", "Fuse them", 2_500_000)
            <Finding warn tiny: Half of the kernels are short; saves 2.50 ms per step>
        """
        saving = self.saving_ns_per_step
        saves = "" if saving is None else f"; {self.saves} {human(saving, 'ns')} per step"
        return f"<Finding {self.severity} {self.code}: {self.title}{saves}>"
