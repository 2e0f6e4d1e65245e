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

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.rules import Bottleneck
from tracekit.analysis.savings import MIN_SHARE
from tracekit.runs.text import human

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
_COMMUNICATES = {Bottleneck.COMMUNICATION, Bottleneck.STRAGGLERS}
_SUBJECTS = {Bottleneck.COMPUTE: "GPU kernels", Bottleneck.QUEUED: "late starts of launched work"}
"""Words for bounds whose names do not read well in the sentence."""
MIN_ASIDE_SHARE = 0.1
"""Share of the window from which edges and start-up are set aside, and that must remain without start-up."""
MAX_PACED_WAIT_SHARE = 0.1
"""Share of the window below which a host that waits for a device does not lose time by it."""


@dataclass(frozen=True)
class Part:
    """Part of the window.

    Attributes:
        bound: What it is spent on.
        label: What exactly: the cause of idle time, or an op.
        dur_ns: Its length.
        share: Its share of the window.
    """

    bound: Bottleneck
    label: str
    dur_ns: int
    share: float


@dataclass(frozen=True)
class About:
    """What is known of a window of devices beside its parts.

    Attributes:
        window: What the window is.
        edges_ns: Length of its edges, with marked warm-up.
        warm_up_ns: Length of the latter.
        named: By bound, what most of it is, in words, or empty: kernels, copies, a collective, an op.
        waits_share: Share of the window in which the host waits for a device.
    """

    window: str
    edges_ns: int = 0
    warm_up_ns: int = 0
    named: Mapping[Bottleneck, str] = field(default_factory=dict)
    waits_share: float = 0.0


@dataclass(frozen=True)
class DeviceVerdict:
    """What bounds a window of devices.

    Attributes:
        bound: The largest part.
        loss: The largest other part of a window bound by compute; None if it is under 1%.
        sentence: All of it in a sentence or two.
        parts: The parts of the window.
        window: What the window is.
    """

    bound: Bottleneck
    loss: Bottleneck | None
    sentence: str
    parts: tuple[Part, ...]
    window: str


def describe_devices(lengths: dict[tuple[Bottleneck, str], int], about: About) -> DeviceVerdict | None:
    """Return the verdict on a window of devices; None if the window has no length.

    Args:
        lengths: Parts of the window in ns, by bound and label, without the edges.
        about: What else is known of the window.
    """
    window, edges_ns = about.window, about.edges_ns
    if edges_ns >= MIN_ASIDE_SHARE * (sum(lengths.values()) + edges_ns) > 0:
        what = "marked warm-up" if 2 * about.warm_up_ns > edges_ns else "the edges of the capture"
        window += f" without {what} ({human(edges_ns, 'ns')})"
    else:
        lengths = {**lengths, (Bottleneck.EDGES, "before the first or after the last work"): edges_ns}
    before, lengths = _set_start_up_aside(lengths, window)
    parts = split_window(lengths)
    if not {part.bound for part in parts} - {Bottleneck.EDGES}:
        return None
    shares = _shares(parts)
    bound, *others = sorted(shares.keys() - {Bottleneck.EDGES}, key=lambda other: (-shares[other], other))
    if bound == Bottleneck.PROFILER and others and others[0] != Bottleneck.UNKNOWN:
        bound, others[0] = others[0], bound
    is_paced = shares[bound] < 0.5 and about.waits_share < MAX_PACED_WAIT_SHARE
    is_paced &= bound == Bottleneck.COMPUTE and others[:1] == [Bottleneck.LAUNCH]
    if is_paced:
        bound, others[0] = others[0], bound
    losses = (other for other in others if other != Bottleneck.COMPUTE and shares[other] >= MIN_SHARE)
    loss = next(losses, None) if bound == Bottleneck.COMPUTE else None
    late = {Bottleneck.LAUNCH: max(LATE, key=lambda one: sum(p.dur_ns for p in parts if p.bound == one))}
    causes = {one: _name_main_cause(parts, late.get(one, one), about.named) for one in (bound, loss) if one}
    causes[Bottleneck.COMPUTE] = about.named.get(Bottleneck.COMPUTE, "")
    meanings = _MEANINGS | ({Bottleneck.COMPUTE: _OTHER_KERNELS} if _COMMUNICATES & set(shares) else {})
    words = {one: late.get(one, _SUBJECTS.get(one, one)) for one in shares}
    text = f"{meanings[bound]} for {human(shares[bound], 'share')} of {'the rest' if before else window}"
    if bound == Bottleneck.UNKNOWN:
        text = f"Cannot tell what bounds this run, too little is recorded: {text}"
    else:
        ahead = ", and the CPU hardly waits for it" if is_paced else ""
        text = f"Bound by {words[bound]}: {text}{ahead}{causes[bound]}"
    if loss:
        share = human(shares[loss], "share")
        text += f". Largest loss: {words[loss]}, {share} ({meanings[loss]}{causes[loss]})"
    elif bound != Bottleneck.COMPUTE:
        text += f"; {meanings[Bottleneck.COMPUTE]} for {human(shares.get(Bottleneck.COMPUTE, 0.0), 'share')}"
    for other in (Bottleneck.PROFILER, Bottleneck.START_UP):
        if other not in (bound, loss) and shares.get(other, 0.0) >= MIN_SHARE:
            text += f"; {other} for {human(shares[other], 'share')}"
    window += " without start-up" if before else ""
    found = late.get(bound, bound), loss and late.get(loss, loss)
    return DeviceVerdict(*found, f"{before}{text}.", parts, window)


AS_LATE = "in collectives, as the CPUs of all ranks are late"
"""Label of waiting for a rank by others whose CPUs are as late."""
LAUNCHES = Bottleneck.LAUNCH, IdleCause.LAUNCH_BOUND.label
PROFILED = Bottleneck.PROFILER, IdleCause.PROFILER.label
START_UP = Bottleneck.START_UP, "start-up"
LATE = (Bottleneck.LAUNCH, Bottleneck.HOST)
"""Bounds that count together: the host is late with the next launch, whatever for."""


def _shares(parts: tuple[Part, ...]) -> dict[Bottleneck, float]:
    """Return the share of each bound in a window, that of late launches as one."""
    shares: dict[Bottleneck, float] = {}
    for part in parts:
        bound = Bottleneck.LAUNCH if part.bound in LATE else part.bound
        shares[bound] = shares.get(bound, 0.0) + part.share
    return shares


def _set_start_up_aside(
    lengths: dict[tuple[Bottleneck, str], int], window: str
) -> tuple[str, dict[tuple[Bottleneck, str], int]]:
    """Return a sentence on start-up and the other parts of a window, if both are a large part of it."""
    total, start_up_ns = sum(lengths.values()), lengths.get(START_UP, 0)
    if not MIN_ASIDE_SHARE * total <= start_up_ns <= (1 - MIN_ASIDE_SHARE) * total or not total:
        return "", lengths
    rest = {other: length for other, length in lengths.items() if other != START_UP}
    share, meaning = human(start_up_ns / total, "share"), _MEANINGS[Bottleneck.START_UP]
    amount = share if "devices" in window else f"{human(start_up_ns, 'ns')}, {share}"  # which overlap in time
    return f"Start-up takes {amount} of {window} ({meaning}). ", rest


def _name_main_cause(parts: tuple[Part, ...], bound: Bottleneck, named: Mapping[Bottleneck, str]) -> str:
    """Name what most of the time of a bound is, if the words for the bound do not tell it."""
    causes = [part for part in parts if part.bound in (LATE if bound in LATE else (bound,))]
    largest = max(causes, key=lambda part: part.dur_ns)
    is_most = 2 * largest.dur_ns > sum(part.dur_ns for part in causes)
    if largest.label == AS_LATE:
        return f", mostly {AS_LATE}" if is_most else ""
    if bound == Bottleneck.HOST:
        most = named.get(bound) or largest.label
        return f", mostly {most}" if is_most and largest.bound == bound else ""
    if bound == Bottleneck.QUEUED:
        return f", mostly {largest.label}" if is_most and len(causes) > 1 else ""
    return named.get(bound, "")


def split_window(lengths: dict[tuple[Bottleneck, str], int]) -> tuple[Part, ...]:
    """Return the parts of a window that have a length."""
    total = sum(lengths.values())
    return tuple(
        Part(bound, label, length, length / total) for (bound, label), length in lengths.items() if length
    )
