"""All advice on a run in one ranked list, and on what to record, by the analysis `capture`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tracekit.analysis import (
    Analysis,
    Analyze,
    Bottleneck,
    Finding,
    Progress,
    Remark,
    Result,
    Severity,
    analyze,
    analyze_each,
)
from tracekit.analysis.savings import EXPLAINS_IDLE, MIN_SHARE, Budget, Ranked, Verdict, budget, severity_of
from tracekit.analysis.verdict import INTEGRITY, Evidence, integrity_line
from tracekit.runs.run import Run
from tracekit.runs.text import human

if TYPE_CHECKING:
    from tracekit.analysis.cache import ResultCache

_WEIGHT = {severity: place for place, severity in enumerate(reversed(Severity))}


CAPTURE, CAPTURE_TITLE = "capture", "What to record to answer more"
"""The analysis of what was not recorded, and the heading of its advice."""


@dataclass(frozen=True)
class Missing:
    """What was not recorded, what it would answer, and the setting that records it."""

    missing: str
    answers: str
    setting: str

    @property
    def text(self) -> str:
        """All of it in one line of prose, with code in backticks."""
        return f"{self.missing}: {self.answers} → {self.setting}"


@dataclass(frozen=True)
class Capture:
    """What a run lacks, most needed first, and the lines that record it in a framework."""

    framework: str
    missing: tuple[Missing, ...]
    lines: tuple[str, ...]


def read_capture(result: Result) -> Capture | None:
    """Return what a run lacks by the result of `capture`; None if nothing."""
    missing, lines = result.tables.get("missing"), result.tables.get("lines")
    if missing is None or lines is None:
        return None
    rows = zip(*(missing[name].astype(str) for name in ("missing", "answers", "setting")), strict=True)
    return Capture(
        str(lines["framework"].iloc[0]),
        tuple(Missing(*row) for row in rows),
        tuple(lines["line"].astype(str)),
    )


@dataclass(frozen=True)
class Advice:
    """Findings of a run, largest saving first, and missing inputs."""

    findings: tuple[Ranked, ...]  # ranked: by saving, those without one last; then by severity and confidence
    budget: Budget  # what savings are measured against
    rules: int  # number of rules that were asked
    unseen: tuple[tuple[str, str], ...] = ()  # the analyses that lacked an input for advice, with that input
    verdict: Verdict | None = None  # what bounds the run; None if not all analyses that tell it were asked
    integrity: str = ""  # integrity verdict in one line; empty if it was not asked
    capture: Capture | None = None  # what was not recorded; None if nothing, or if it was not asked
    complete: bool = True  # whether every analysis has ended, with all ranks

    @property
    def shares(self) -> dict[str, float]:
        """Return the largest saving of each rule as a share of the step, by code; 0 without a saving."""
        largest: dict[str, float] = {}
        for ranked in self.findings:
            code = ranked.finding.code
            largest[code] = max(largest.get(code, 0.0), ranked.share_of_step or 0.0)
            for remedy in ranked.finding.remedies:
                share = _share_of_step(remedy, self.budget) or 0.0
                largest[remedy.code] = max(largest.get(remedy.code, 0.0), share)
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


def advise_cached(cache: ResultCache, run: Run, by: Analyze | None = None) -> Advice:
    """Return all advice on a run, as `tracekit findings` does: cached, or computed and then cached.

    Args:
        cache: The cache.
        run: The run.
        by: What gives the results if the advice is not cached; the cache by default.
    """
    return find_advice(cache, run, partial(advise, run, by=by or cache.analyze))


def find_advice(cache: ResultCache, run: Run, compute: Callable[[], Advice]) -> Advice:
    """Return all advice on a run: cached, or as a function makes it and then cached."""
    return cache.answer(run, (), ("findings", True), Advice, compute)


def gather(run: Run, results: Iterable[tuple[Analysis, Result]]) -> Advice:
    """Rank the findings of given results (`by_saving`), and decide what bounds the run (`Evidence.verdict`).

    Args:
        run: The run they were run on.
        results: Analyses in any order, each with its result; taken one by one, and tables that are not needed
            let go.
    """
    evidence = Evidence()
    found: list[tuple[Analysis, Finding]] = []
    unseen: list[tuple[Analysis, str]] = []
    rules, integrity, lacks, complete = 0, "", None, True
    for analysis, result in results:
        evidence.add(analysis.name, result)
        found += [(analysis, finding) for finding in result.findings]
        if analysis.rules:
            unseen += [(analysis, note) for note in result.notes if not isinstance(note, Remark)]
        complete = complete and not result.incomplete
        rules += len(analysis.rules)
        if analysis.name == INTEGRITY:
            integrity = integrity_line(result)
        elif analysis.name == CAPTURE:
            lacks = read_capture(result)
    # Findings of different analyses can be equal by `_sort_key`: the first in the menu leads.
    found.sort(key=lambda item: item[0].menu_place)
    unseen.sort(key=lambda item: item[0].menu_place)
    against = budget(run)
    ranked = by_saving(rank_finding(analysis, finding, against) for analysis, finding in found)
    verdict = evidence.verdict(ranked) if evidence.complete else None
    notes = tuple((analysis.name, note) for analysis, note in unseen)
    return Advice(ranked, against, rules, notes, verdict, integrity, lacks, complete)


def rank_finding(analysis: Analysis, finding: Finding, against: Budget) -> Ranked:
    """Return a finding with what its rule says and its saving as a share of the step."""
    bound = next((rule.bound for rule in analysis.rules if rule.code == finding.code), None)
    return Ranked(analysis.name, finding, _share_of_step(finding, against), bound)


def by_saving(findings: Iterable[Ranked]) -> tuple[Ranked, ...]:
    """Rank findings by saving; those of the same time are one finding with several remedies.

    Larger savings come first, findings without one last, then by severity and confidence. A finding of the
    same time as an earlier one is a remedy of that one. Idle time that a more specific finding claims is no
    longer claimed by `idle_gaps`, which explains all of it.
    """
    leading: list[Ranked] = []
    for candidate in sorted(findings, key=_sort_key):
        leader = next((other for other in leading if _is_same_time(candidate, other)), None)
        if leader is None:
            leading.append(candidate)
        else:
            leading[leading.index(leader)] = _add_remedy(leader, candidate)
    return tuple(sorted(_claim_once(leading), key=_sort_key))


def _add_remedy(leader: Ranked, other: Ranked) -> Ranked:
    """Return a finding with another one of its time as a remedy."""
    remedies = (*leader.finding.remedies, other.finding)
    return replace(leader, finding=replace(leader.finding, remedies=remedies))


_REMOVES_ALL = "critical_path"  # the analysis that computes what is saved without any time of a kind
_BUSY = {Bottleneck.COMPUTE, Bottleneck.COMMUNICATION, Bottleneck.COPIES}


def _kind_of_time(ranked: Ranked) -> str:
    """Return what the rows of evidence are of a finding's time: all of it, or what follows idle time."""
    if ranked.bound == Bottleneck.STRAGGLERS:
        return "waiting"
    return "busy" if ranked.bound in _BUSY else "idle"


def _is_same_time(candidate: Ranked, other: Ranked) -> bool:
    """Whether two findings are of the same time.

    That is so if most rows of `device_intervals` of one are among those of the other, and both are of the
    time of these rows or both of the idle time before them; or if one is computed without any time of what
    both are about. Evidence has the rows with most time, so that of a part is among that of the whole.
    """
    rows, others = _rows(candidate), _rows(other)
    is_alike = _kind_of_time(candidate) == _kind_of_time(other)
    if is_alike and 2 * len(rows & others) > min(len(rows), len(others)):
        return True
    claims_all = _REMOVES_ALL in (candidate.analysis, other.analysis) and candidate.bound == other.bound
    savings = candidate.finding.saving_ns_per_step, other.finding.saving_ns_per_step
    return claims_all and all(savings)


def _claim_once(findings: Sequence[Ranked]) -> list[Ranked]:
    """Return findings of which those on all idle time of a bound do not claim what others of it claim.

    Without the waits for a device, the host would also be ahead where it is late with launches now: what is
    saved without all waits, beyond the idle time after each of them, is claimed from launches, too.

    One of which less than `MIN_SHARE` of a step remains is a remedy of the largest of these others.
    """
    kept = [ranked for ranked in findings if ranked.analysis != EXPLAINS_IDLE]
    for ranked in findings:
        if ranked.analysis != EXPLAINS_IDLE:
            continue
        others = [other for other in kept if other.analysis != EXPLAINS_IDLE]
        parts = {place: _claims(other, ranked) for place, other in enumerate(others)}
        same = sum(ns for place, ns in parts.items() if others[place].bound == ranked.bound)
        rest = _without_parts(ranked, max([same, *parts.values()]))  # what waits claim may be in the others
        if rest is None:
            largest = others[max(parts, key=lambda place: parts[place])]
            kept[kept.index(largest)] = _add_remedy(largest, ranked)
        else:
            kept.append(rest)
    return kept


def _claims(other: Ranked, ranked: Ranked) -> int:
    """Return what a finding claims of the idle time that another one explains."""
    saving = other.finding.saving_ns_per_step or 0
    if other.bound == ranked.bound:
        return saving
    if (other.analysis, other.bound, ranked.bound) != (_REMOVES_ALL, Bottleneck.SYNC, Bottleneck.LAUNCH):
        return 0
    after_waits = sum(remedy.saving_ns_per_step or 0 for remedy in other.finding.remedies)
    return max(0, saving - after_waits)


def _without_parts(ranked: Ranked, claimed_ns: int) -> Ranked | None:
    """Return a finding on idle time without what others claim of it; None if too little is left."""
    finding, share = ranked.finding, ranked.share_of_step
    if not claimed_ns or not finding.saving_ns_per_step or not share:
        return ranked
    rest = max(0, finding.saving_ns_per_step - claimed_ns)
    left = share * rest / finding.saving_ns_per_step
    if left < MIN_SHARE:
        return None
    how = f"{finding.how}; without {human(claimed_ns, 'ns')} that other findings claim"
    severity = min(finding.severity, severity_of(left), key=[*Severity].index)
    lower = replace(finding, saving_ns_per_step=rest, severity=severity, how=how)
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
