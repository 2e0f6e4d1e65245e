"""All advice on a run in one ranked list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tracekit.analysis import (
    Analysis,
    Analyze,
    Finding,
    Progress,
    Remark,
    Result,
    Severity,
    analyze,
    analyze_each,
    capture,
)
from tracekit.analysis.capture import Capture
from tracekit.analysis.savings import Budget, Ranked, budget, severity_of
from tracekit.analysis.verdict import INTEGRITY, Evidence, Verdict, integrity_line
from tracekit.runs.run import Run
from tracekit.runs.text import human

_WEIGHT = {severity: place for place, severity in enumerate(reversed(Severity))}


@dataclass(frozen=True)
class Advice:
    """Findings of a run, largest saving first, and missing inputs.

    Attributes:
        findings: Ranked: by saving, those without one last; then by severity and confidence.
        budget: What savings are measured against.
        rules: Number of rules that were asked.
        unseen: The analyses that lacked an input for advice, with that input.
        verdict: What bounds the run; None if not all analyses that tell it were asked.
        integrity: Integrity verdict in one line; empty if it was not asked.
        capture: What was not recorded; None if nothing, or if it was not asked.
        complete: Whether every analysis has ended, with all ranks.
    """

    findings: tuple[Ranked, ...]
    budget: Budget
    rules: int
    unseen: tuple[tuple[str, str], ...] = ()
    verdict: Verdict | None = None
    integrity: str = ""
    capture: Capture | None = None
    complete: bool = True

    @property
    def shares(self) -> dict[str, float]:
        """Return the largest saving of each rule as a share of the step, by code; 0 without a saving."""
        largest: dict[str, float] = {}
        for ranked in self.findings:
            code = ranked.finding.code
            largest[code] = max(largest.get(code, 0.0), ranked.share_of_step or 0.0)
        return largest

    @property
    def lacking(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return each missing input once with the analyses that need it, most needed first."""
        by_note: dict[str, list[str]] = {}
        for name, note in self.unseen:
            by_note.setdefault(note, []).append(name)
        ordered = sorted(by_note.items(), key=lambda item: -len(item[1]))
        return tuple((note, tuple(names)) for note, names in ordered)


def advise(
    run: Run, names: Sequence[str] = (), *, progress: Progress | None = None, by: Analyze = analyze
) -> Advice:
    """Run every analysis, or those named, and rank what they found, as `gather` does.

    The savings of different findings may be of the same time: they do not add up.

    Args:
        run: The run.
        names: Analyses to ask; all by default.
        progress: Called with each analysis before it runs.
        by: What gives the results; computes them by default.

    Returns:
        The ranked findings; of the named analyses, one that fails raises.

    Raises:
        PluginError: A named analysis is unknown or failed. Of all, one that fails has a note in its result.

    Example:
        >>> import tracekit
        >>> from tracekit.analysis.findings import advise
        >>> [ranked.finding.title for ranked in advise(tracekit.open("latest")).findings]  # doctest: +SKIP
    """
    return gather(run, analyze_each(run, names, progress=progress, by=by))


def gather(run: Run, results: Iterable[tuple[Analysis, Result]]) -> Advice:
    """Rank the findings of given results (`by_saving`), and decide what bounds the run (`Evidence.verdict`).

    Args:
        run: The run they were run on.
        results: Analyses, each with its result; taken one by one, and tables that are not needed let go.
    """
    evidence = Evidence()
    found: list[tuple[Analysis, Finding]] = []
    unseen: list[tuple[str, str]] = []
    rules, integrity, lacks, complete = 0, "", None, True
    for analysis, result in results:
        evidence.add(analysis.name, result)
        found += [(analysis, finding) for finding in result.findings]
        if analysis.rules:
            unseen += [(analysis.name, note) for note in result.notes if not isinstance(note, Remark)]
        complete = complete and not result.incomplete
        rules += len(analysis.rules)
        if analysis.name == INTEGRITY:
            integrity = integrity_line(result)
        elif analysis.name == capture.NAME:
            lacks = capture.of_result(result)
    against = budget(run)
    ranked = by_saving(rank_finding(analysis, finding, against) for analysis, finding in found)
    verdict = evidence.verdict(ranked) if evidence.complete else None
    return Advice(ranked, against, rules, tuple(unseen), verdict, integrity, lacks, complete)


def rank_finding(analysis: Analysis, finding: Finding, against: Budget) -> Ranked:
    """Return a finding with what its rule says and its saving as a share of the step.

    Args:
        analysis: The analysis that made it.
        finding: The finding.
        against: What savings are measured against.
    """
    bound = next((rule.bound for rule in analysis.rules if rule.code == finding.code), None)
    return Ranked(analysis.name, finding, _share_of_step(finding, against), bound)


def by_saving(findings: Iterable[Ranked]) -> tuple[Ranked, ...]:
    """Rank findings by saving, and take the saving from those whose time an earlier one claims.

    Larger savings come first, findings without one last, then by severity and confidence. A finding of the
    same time as an earlier one with a saving becomes information that names the earlier one. Idle time that a
    more specific finding claims is no longer claimed by `idle_gaps`, which explains all of it.
    """
    credited: list[Ranked] = []
    for candidate in sorted(findings, key=_sort_key):
        claiming = (other for other in credited if _is_same_time(candidate, other))
        earlier = next(claiming, None)
        if earlier:
            reason = f"the same time as {earlier.analysis}: {earlier.finding.title}"
            lower = candidate.finding.without_saving(reason)
            credited.append(replace(candidate, finding=lower, share_of_step=None))
        else:
            credited.append(candidate)
    return tuple(sorted((_without_parts(finding, credited) for finding in credited), key=_sort_key))


_REMOVES_ALL, _EXPLAINS_ALL = "critical_path", "idle_gaps"
"""The analysis that computes what is saved without any time of a kind, and that of all idle time."""


def _is_same_time(candidate: Ranked, other: Ranked) -> bool:
    """Whether a finding is of the time that another one claims.

    That is so if its evidence in `device_intervals` is all among that of the other, or if one of them is
    computed without any time of what both are about.
    """
    if not other.finding.saving_ns_per_step:
        return False
    rows = _rows(candidate)
    claims_all = _REMOVES_ALL in (candidate.analysis, other.analysis) and candidate.bound == other.bound
    is_part = bool(rows) and rows <= _rows(other)
    return is_part or (claims_all and bool(candidate.finding.saving_ns_per_step))


def _without_parts(ranked: Ranked, findings: Sequence[Ranked]) -> Ranked:
    """Return a finding on all idle time of a bound without what other findings claim of it."""
    finding, share = ranked.finding, ranked.share_of_step
    if ranked.analysis != _EXPLAINS_ALL or not finding.saving_ns_per_step or not share:
        return ranked
    others = (
        other for other in findings if (other.bound, other.analysis != _EXPLAINS_ALL) == (ranked.bound, True)
    )
    claimed = sum(other.finding.saving_ns_per_step or 0 for other in others)
    rest = max(0, finding.saving_ns_per_step - claimed)
    if not claimed:
        return ranked
    left = share * rest / finding.saving_ns_per_step
    how = f"{finding.how}; without {human(claimed, 'ns')} that other findings claim"
    lower = replace(finding, saving_ns_per_step=rest, severity=severity_of(left), how=how)
    return replace(ranked, finding=lower, share_of_step=left)


def _rows(ranked: Ranked) -> set[int]:
    return set(ranked.finding.evidence.get("device_intervals", ()))


def _share_of_step(finding: Finding, against: Budget) -> float | None:
    if finding.saving_ns_per_step is None or not against.step_ns:
        return None
    return finding.saving_ns_per_step / against.step_ns


def _sort_key(ranked: Ranked) -> tuple[bool, int, int, float, str, str]:
    """Return the place among findings: saving, severity, confidence, then code and title."""
    finding = ranked.finding
    saving = finding.saving_ns_per_step
    weight = _WEIGHT[finding.severity]
    return (saving is None, -(saving or 0), weight, -finding.confidence, finding.code, finding.title)
