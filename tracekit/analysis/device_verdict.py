"""What bounds a window of devices: its parts, the largest of them, and all of it in a sentence or two.

Kernel launches and host work count together, and the larger of them is named. Where communication runs, the
kernels that are spoken of are the others.

Example:
    >>> lengths = {(Bottleneck.COMPUTE, "compute"): 80, (Bottleneck.INPUT, "data loading"): 20}
    >>> describe_devices(lengths, About(window="the capture")).sentence
    'Bound by GPU kernels: kernels run for 80.0% of the capture. Largest loss: input, 20.0% (the GPU is idle \
during data loading).'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.analysis.host_verdict import NAME_WIDTH
from tracekit.analysis.idle_causes import OF_IT, OUTSIDE, IdleCause
from tracekit.analysis.kernel_names import COMMUNICATION, PRODUCTS, shorten_kernel
from tracekit.analysis.rules import Bottleneck
from tracekit.analysis.savings import MIN_ASIDE_SHARE, MIN_SHARE, Part, Verdict, is_few, split_window
from tracekit.errors import clean
from tracekit.runs.text import human, shorten
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

_MEANINGS = {
    Bottleneck.COMPUTE: "kernels run",
    Bottleneck.COMMUNICATION: "communication runs and no other kernel",
    Bottleneck.STRAGGLERS: "a collective waits for its last rank",
    Bottleneck.COPIES: "copies run and no kernel",
    Bottleneck.INPUT: "the GPU is idle during data loading",
    Bottleneck.LAUNCH: "the GPU is idle until the CPU launches",
    Bottleneck.HOST: "the GPU is idle until the CPU launches",
    Bottleneck.START_UP: "the CPU initializes, loads or compiles code, or chooses algorithms",
    Bottleneck.SYNC: "the GPU is idle after the CPU waited for it",
    Bottleneck.QUEUED: "the GPU is idle although work was launched",
    Bottleneck.PROFILER: "the GPU is idle because the profiler slows the CPU",
    Bottleneck.UNKNOWN: "the GPU is idle for an unknown cause",
}
_OTHER_KERNELS = "kernels other than communication run"
_COMMUNICATES = (Bottleneck.COMMUNICATION, Bottleneck.STRAGGLERS)
_SUBJECTS = {Bottleneck.COMPUTE: "GPU kernels", Bottleneck.QUEUED: "late starts of launched work"}
"""Words for bounds whose names do not read well in the sentence."""
_SAID_LAST = (Bottleneck.PROFILER, Bottleneck.START_UP)
MIN_KERNEL_SHARE = 0.1
"""Share of the kernel time from which the largest family of kernels is named."""
MIN_SECOND_SHARE = 0.2
"""The same for the second family, which must also have at least half of the first one's."""
MIN_PRODUCTS_SHARE = 0.25
"""Share of the kernel time from which matrix products are named where no family of kernels is."""
MIN_GAP_SHARE = 0.5
"""Share of the window from which one gap is set aside in which nothing was recorded of the host."""
MIN_QUEUED_NS = 1_000_000
"""Time of the first launch in the queue from which the device ran other work, which was not recorded."""
MAX_PACED_WAIT_SHARE = 0.1
"""Share of the window below which a host that waits for a device does not lose time by it."""


@dataclass(frozen=True)
class About:
    """What is known of a window of devices beside its parts."""

    window: str  # what the window is
    edges_ns: int = 0  # length of its edges, with marked warm-up
    # length of the latter; for how long launched work waits in them for work that is not recorded; and
    # whether what precedes the first work is explained, and no edge
    edges: tuple[int, int, bool] = (0, 0, False)
    # by bound, what most of it is, in words, or empty: kernels, copies, a collective, an op
    named: Mapping[Bottleneck, str] = field(default_factory=dict)
    waits_share: float = 0.0  # share of the window in which the host waits for a device
    gap_ns: int = 0  # length of the one gap without recorded work that is most of the host's work, or 0
    after_gap: str = ""  # in what most of the host's work is without that gap, or empty
    latency_ns: int = 0  # part of the idle time due to late launches that is after their calls began
    # for how many ns the CPU was recorded before the first work of a device; what takes most of that time, or
    # empty; for how many ns; and for how long that work was queued
    lead: tuple[int, str, int, int] = (0, "", 0, 0)


def describe_few_intervals(frame: pd.DataFrame, names: pd.DataFrame | None) -> str:
    """Return that too little is recorded of the devices for a verdict, and what; empty if enough is.

    `frame` is the table of `gpu_breakdown` on the window, `names` the table `by_name` of `host_breakdown`.
    """
    counts = frame[["kernels", "memcpys", "memsets"]].sum(axis=1).groupby(frame[C.RANK]).sum()
    on_host = {} if names is None else names.groupby(C.RANK)["calls"].sum().to_dict()
    few = [is_few(int(count), int(on_host.get(rank, 0))) for rank, count in counts.items()]
    if not all(few) or frame["graph_ns"].any():
        return ""
    most = int(counts.max())
    each = " of each rank" if len(counts) > 1 else ""
    what = "kernel or copy" if most == 1 else "kernels and copies"
    return f"too little is recorded, only {most} {what}{each}: record more of the program"


def describe_devices(lengths: dict[tuple[Bottleneck, str], int], about: About) -> Verdict | None:
    """Return the verdict on a window of devices; None if the window has no length.

    `lengths` are the parts of the window in ns without the edges.
    """
    window, edges_ns = about.window, about.edges_ns
    aside = name_aside(edges_ns, sum(lengths.values()) + edges_ns, about.edges)
    window += aside
    if not aside:
        lengths = {**lengths, (Bottleneck.EDGES, "before the first or after the last work"): edges_ns}
    aside_first, rest, lengths = _set_times_aside(lengths, about.gap_ns, window)
    is_gap = _IN_ONE_GAP in aside_first
    named = {**about.named, **({Bottleneck.HOST: about.after_gap, Bottleneck.LAUNCH: ""} if is_gap else {})}
    parts = split_window(lengths)
    if not {part.bound for part in parts} - {Bottleneck.EDGES}:
        return None
    shares = _shares(parts)
    (bound, *others), is_paced = _order(shares, about.waits_share)
    losses = (other for other in others if other != Bottleneck.COMPUTE and shares[other] >= MIN_SHARE)
    loss = next(losses, None) if bound == Bottleneck.COMPUTE else None
    late = {Bottleneck.LAUNCH: max(LATE, key=lambda one: sum(p.dur_ns for p in parts if p.bound == one))}
    causes = {one: _name_main_cause(parts, late.get(one, one), named) for one in (bound, loss) if one}
    causes[Bottleneck.COMPUTE] = about.named.get(Bottleneck.COMPUTE, "")
    waiting = about.named.get(Bottleneck.STRAGGLERS, "")
    _add_waiting(shares, causes, waiting)
    meanings = _MEANINGS | ({Bottleneck.COMPUTE: _OTHER_KERNELS} if set(_COMMUNICATES) & set(shares) else {})
    in_collectives = AS_LATE in causes.get(Bottleneck.LAUNCH, "")  # which run there: the GPU is not idle
    meanings |= {Bottleneck.LAUNCH: "the GPU waits for the CPU"} if in_collectives else {}
    words = {one: late.get(one, _SUBJECTS.get(one, one)) for one in shares}
    is_unknown = f"mostly {OUTSIDE}" in causes.get(Bottleneck.LAUNCH, "")
    words |= {Bottleneck.LAUNCH: "unrecorded activity of the CPU"} if is_unknown else {}
    said, then = _divide_launches(parts, about.latency_ns, in_collectives=in_collectives)
    if then and Bottleneck.LAUNCH in causes:
        of = "of the time outside of collectives" if AS_LATE in then else "of both"
        causes[Bottleneck.LAUNCH] = causes[Bottleneck.LAUNCH].replace(OF_IT, of)
    share = said if bound == Bottleneck.LAUNCH else shares[bound]
    text = f"{meanings[bound]} for {human(share, 'share')} of {rest or window}"
    text += then * (bound == Bottleneck.LAUNCH)
    if bound == Bottleneck.UNKNOWN:
        text = f"Cannot tell what bounds this run, too little is recorded: {text}"
    else:
        ahead = ", and the CPU hardly waits for it" if is_paced else ""
        text = f"Bound by {words[bound]}: {text}{ahead}{causes[bound]}"
    if bound != Bottleneck.COMPUTE:
        kernels = meanings[Bottleneck.COMPUTE]
        text += _describe_work(shares, kernels, waiting, is_bound=bound in _COMMUNICATES)
    if beside := loss or _largest_beside(shares, bound):
        until = f" for {human(said, 'share')}{then}" * bool(then and beside == Bottleneck.LAUNCH)
        lost = f"{words[beside]}, {human(shares[beside], 'share')}"
        largest = "Largest loss" if loss else "Largest other loss"
        text += f". {largest}: {lost} ({meanings[beside]}{until}{causes.get(beside, '')})"
    for other in _SAID_LAST:
        if other not in (bound, loss) and shares.get(other, 0.0) >= MIN_SHARE:
            text += f"; {other} for {human(shares[other], 'share')}"
    if rest:
        left_out = ["start-up"] * aside_first.startswith(_START_UP_TAKES) + ["one gap"] * is_gap
        window += f" without {' and '.join(left_out)}"
    found = late.get(bound, bound), loss and late.get(loss, loss)
    lead = _describe_lead(about, sum(lengths.values()) + edges_ns, shares.get(Bottleneck.QUEUED, 0.0))
    return Verdict(*found, f"{lead}{aside_first}{text}.", parts, window)


def _order(shares: Mapping[Bottleneck, float], waits_share: float) -> tuple[list[Bottleneck], bool]:
    """Return what a window is spent on, what bounds it first, and whether the host sets the pace.

    The profiler bounds a window only of which nothing else is known.
    """
    order = sorted(shares.keys() - {Bottleneck.EDGES}, key=lambda one: (-shares[one], one))
    is_paced = shares[order[0]] < 0.5 and waits_share < MAX_PACED_WAIT_SHARE
    is_paced &= order[:2] == [Bottleneck.COMPUTE, Bottleneck.LAUNCH]
    is_slowed = order[0] == Bottleneck.PROFILER and order[1:2] not in ([], [Bottleneck.UNKNOWN])
    if is_paced or is_slowed:
        order[0], order[1] = order[1], order[0]
    return order, is_paced


ASIDE = "excluding"


def name_aside(edges_ns: int, total_ns: int, edges: tuple[int, int, bool]) -> str:
    """Name what a window is without; empty if its edges are a part of it because they are short.

    `edges` is that of `About`.

    Example:
        >>> name_aside(30_000_000, 100_000_000, (0, 0, False)), name_aside(1, 100_000_000, (0, 0, False))
        (' excluding 30.00 ms before the first and after the last GPU work', '')
    """
    if not edges_ns >= MIN_ASIDE_SHARE * total_ns > 0:
        return ""
    warm_up_ns, behind_ns, is_explained = edges
    what = "after the last GPU work" if is_explained else "before the first and after the last GPU work"
    what = "with work from before the capture" if 2 * behind_ns > edges_ns else what
    what = "of marked warm-up" if 2 * warm_up_ns > edges_ns else what
    return f" {ASIDE} {human(edges_ns, 'ns')} {what}"


AS_LATE = "in collectives, as the CPUs of all ranks are late"
"""Label of waiting for a rank by others whose CPUs are as late."""
LAUNCHES = Bottleneck.LAUNCH, IdleCause.LAUNCH_BOUND.label
HOST_WORK = Bottleneck.HOST, IdleCause.HOST_WORK.label
PROFILED = Bottleneck.PROFILER, IdleCause.PROFILER.label
START_UP = Bottleneck.START_UP, "start-up"
LATE = (Bottleneck.LAUNCH, Bottleneck.HOST)
"""Bounds that count together: the host is late with the next launch, whatever for."""


def _describe_lead(about: About, window_ns: int, queued_share: float) -> str:
    """Say for how long the CPU was recorded before the first work of a device, if that is a large part.

    Launched work that was queued until then waited for other work, unless work starts late later on, too.
    """
    lead_ns, work, work_ns, queued_ns = about.lead
    _, behind_ns, _ = about.edges
    if behind_ns >= MIN_QUEUED_NS and 2 * behind_ns > about.edges_ns >= MIN_ASIDE_SHARE * window_ns:
        waits = human(behind_ns, "ns")
        return f"At the start, launched work waits {waits}, probably for GPU work from before the capture. "
    least_ns = max(MIN_QUEUED_NS, MIN_ASIDE_SHARE * window_ns)
    is_behind = queued_ns >= least_ns and 2 * queued_ns > max(lead_ns, about.edges_ns)
    if is_behind and queued_share < MIN_ASIDE_SHARE:
        waits = human(queued_ns, "ns")
        return f"The first launched work waits {waits}, probably for work of the GPU that is not recorded. "
    if not lead_ns >= MIN_ASIDE_SHARE * (lead_ns + window_ns) > 0:
        return ""
    is_large = work_ns >= MIN_ASIDE_SHARE * lead_ns
    most = f", {human(work_ns, 'ns')} of it in {shorten(clean(work), NAME_WIDTH)}" if is_large else ""
    return f"The first work of the GPU begins {human(lead_ns, 'ns')} into the recording{most}. "


def _shares(parts: tuple[Part, ...]) -> dict[Bottleneck, float]:
    """Return the share of each bound in a window, that of late launches as one."""
    shares: dict[Bottleneck, float] = {}
    for part in parts:
        bound = Bottleneck.LAUNCH if part.bound in LATE else part.bound
        shares[bound] = shares.get(bound, 0.0) + part.share
    return shares


def _divide_launches(parts: tuple[Part, ...], latency_ns: int, *, in_collectives: bool) -> tuple[float, str]:
    """Return for which share of a window the CPU has not launched, and other parts of its delays in words."""
    of_label: Counter[str] = Counter()
    for part in parts:
        of_label[part.label if part.bound in LATE else ""] += part.dur_ns
    total = of_label.total()
    late_ns, text = total - of_label[""], ""
    for length, words in (
        (min(latency_ns, total - of_label[""] - of_label[AS_LATE]), "from then until the work starts"),
        (of_label[AS_LATE], f"waits {AS_LATE},"),
    ):
        if length >= MIN_SHARE * total and not in_collectives:
            late_ns -= length
            text += f", and {words} for {human(length / total, 'share')}"
    return late_ns / total, text


def _describe_work(shares: dict[Bottleneck, float], kernels: str, waiting: str, *, is_bound: bool) -> str:
    """Say for how long kernels run, and communication and its waiting unless they are the bound."""
    compute, sends, waits = (shares.get(one, 0.0) for one in (Bottleneck.COMPUTE, *_COMMUNICATES))
    talks = human(sends + waits, "share")
    if waits >= MIN_SHARE:
        waited = f"{human(waits, 'share')} waiting for the last rank{waiting}{';' if waiting else ','}"
        talks += f" ({waited} {human(sends, 'share')} transfer)"
    if not is_bound and sends + waits and not compute:
        return f"; communication, the only GPU work, runs for {talks}"
    text = f"; {kernels} for {human(compute, 'share')}"
    large = not is_bound and sends + waits >= MIN_ASIDE_SHARE
    return f"{text}, communication and no other kernel for {talks}" if large else text


def _largest_beside(shares: dict[Bottleneck, float], bound: Bottleneck) -> Bottleneck | None:
    """Return the largest part beside what bounds the window and what is said of it; None if it is small."""
    said = {bound, *_COMMUNICATES, Bottleneck.COMPUTE, *_SAID_LAST, Bottleneck.EDGES}
    large = [other for other, share in shares.items() if other not in said and share >= MIN_ASIDE_SHARE]
    return max(large, key=lambda other: shares[other], default=None)


def _add_waiting(shares: dict[Bottleneck, float], causes: dict[Bottleneck, str], waiting: str) -> None:
    """Add to exposed communication what it waits for the last rank, where that is not spoken of itself."""
    waited, named = shares.get(Bottleneck.STRAGGLERS, 0.0), causes.get(Bottleneck.COMMUNICATION)
    if waited and named is not None and Bottleneck.STRAGGLERS not in causes:
        shares[Bottleneck.COMMUNICATION] += waited
        says = f", {human(waited, 'share')} before the last rank arrives{waiting}"
        causes[Bottleneck.COMMUNICATION] = f"{says}{named}"


_START_UP_TAKES, _IN_ONE_GAP = "Start-up takes", "in one gap"


def _set_times_aside(
    lengths: dict[tuple[Bottleneck, str], int], gap_ns: int, window: str
) -> tuple[str, str, dict[tuple[Bottleneck, str], int]]:
    """Set start-up and one unrecorded gap aside, each if it and the remaining time are a large part.

    Returns:
        Sentences on these; the name of the other time, or empty without any; and its parts.
    """
    text, whole_ns = "", sum(lengths.values())
    start_up_ns, least = lengths.get(START_UP, 0), 1 - MIN_ASIDE_SHARE
    several = "devices" in window  # whose times overlap, so that a sum says nothing
    if 0 < MIN_ASIDE_SHARE * whole_ns <= start_up_ns <= least * whole_ns:
        lengths = {other: length for other, length in lengths.items() if other != START_UP}
        share, meaning = human(start_up_ns / whole_ns, "share"), _MEANINGS[Bottleneck.START_UP]
        amount = share if several else f"{human(start_up_ns, 'ns')}, {share}"
        text = f"{_START_UP_TAKES} {amount} of {window} ({meaning}). "
    total, gap_ns = sum(lengths.values()), min(gap_ns, lengths.get(HOST_WORK, 0))
    if 0 < MIN_GAP_SHARE * total <= gap_ns <= least * total:
        lengths = {**lengths, HOST_WORK: lengths[HOST_WORK] - gap_ns}
        amount = f"{human(gap_ns, 'ns')}, {human(gap_ns / whole_ns, 'share')} of {window}"
        text += f"Nothing is recorded of the CPU {_IN_ONE_GAP} of {amount}. "
    rest = "the rest" if several else f"the other {human(sum(lengths.values()), 'ns')}"
    return text, rest if text else "", lengths


def _name_main_cause(parts: tuple[Part, ...], bound: Bottleneck, named: Mapping[Bottleneck, str]) -> str:
    """Name what most of the time of a bound is, if the words for the bound do not tell it."""
    causes = [part for part in parts if part.bound in (LATE if bound in LATE else (bound,))]
    largest = max(causes, key=lambda part: part.dur_ns)
    is_most = 2 * largest.dur_ns > sum(part.dur_ns for part in causes)
    if largest.label == AS_LATE:
        return f", for {human(largest.share, 'share')} {AS_LATE}" if is_most else ""
    if bound == Bottleneck.HOST:
        most = named.get(bound) or f", mostly {largest.label}"
        return most if is_most and largest.bound == bound else named.get(Bottleneck.LAUNCH, "")
    if bound == Bottleneck.QUEUED:
        return f", mostly {largest.label}" if is_most and len(causes) > 1 else ""
    return named.get(bound, "")


def name_kernels(
    families: pd.DataFrame | None, rates: pd.DataFrame | None, *, of: str = "kernel time"
) -> str:
    """Return the families of kernels with most time, their shares and rates, in words; empty if small.

    Families whose shortened names are equal count together: a reader cannot tell them apart. The tables are
    `families` of `kernels` and `kernels` of `roofline`; the shares are of what `of` says.
    """
    if families is None:
        return ""
    shares: Counter[str] = Counter()
    for family, share in zip(families["family"], families["share"], strict=True):
        if not re.search(COMMUNICATION, str(family)):
            shares[str(family)] += share  # a Counter orders any number
    shown: dict[str, list[str]] = {}
    for family in shares:
        shown.setdefault(shorten_kernel(clean(family), NAME_WIDTH), []).append(family)
    totals = Counter({name: sum(shares[family] for family in own) for name, own in shown.items()})
    first, second, *_ = [*totals.most_common(2), ("", 0.0), ("", 0.0)]
    if first[1] < MIN_KERNEL_SHARE:
        return _describe_products(shares, rates, of)
    is_second = second[1] >= max(MIN_SECOND_SHARE, first[1] / 2)
    words = [
        f"{name} ({human(float(share), 'share')} of {of}"
        f"{_describe_rate(rates, shown[name][0]) if len(shown[name]) == 1 else ''})"
        for name, share in ([first, second] if is_second else [first])
    ]
    return f", largest: {' and '.join(words)}"


def _describe_rate(rates: pd.DataFrame | None, family: str) -> str:
    """Return how close kernels are to a peak; empty if that is known of less than half of their time."""
    rows = rates[rates["family"] == family] if rates is not None else None
    if rows is None or rows.empty:
        return ""
    row = rows.sort_values("share").iloc[-1]
    by_peak = {
        f"{str(row['precision']).upper()} peak": float(row["peak_share"]),
        "memory bandwidth": float(row["bandwidth_share"]),
    }
    known = {peak: share for peak, share in by_peak.items() if share > 0}  # NaN is not
    if 2 * row["share"] < row["family_share"] or not known or max(known.values()) > 1:
        return ""
    peak = max(known, key=lambda name: known[name])
    return f", at {human(known[peak], 'share')} of the {peak}"


def _describe_products(shares: Mapping[str, float], rates: pd.DataFrame | None, of: str) -> str:
    """Return the share of all matrix products, with their rate if it is known of half; empty if small."""
    products = {name: share for name, share in shares.items() if re.search(PRODUCTS, name)}
    share = float(sum(products.values()))
    if share < MIN_PRODUCTS_SHARE:
        return ""
    says = f", largest: matrix products ({human(share, 'share')} of {of}"
    rows = (
        rates[rates["peak_share"].notna() & rates["family"].isin(list(products))]
        if rates is not None
        else None
    )
    if rows is None or 2 * (known := float(rows["share"].sum())) < share:
        return f"{says})"
    reached = float((rows["peak_share"] * rows["share"]).sum()) / known
    return f"{says})" if reached > 1 else f"{says}, at {human(reached, 'share')} of their peak)"
