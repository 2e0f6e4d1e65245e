"""Find the processes that launched work of devices, in a trace of several whose correlation ids are equal."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, cycle
from typing import Any, TypeAlias

import msgspec

from tracekit.ingest.kineto.events import UNREADABLE
from tracekit.ingest.kineto.split import repair
from tracekit.ingest.link.trace import MAX_RANK

Group: TypeAlias = int | str
_MAX_LATE_SHARE = 0.01
"""Share of the work of a device that may start before the calls of the process that it belongs to."""
_CLEARLY = 0.5
"""Delays of the calls of one process over those of another, from which the work belongs to the first."""


class Args(msgspec.Struct):
    """Arguments that tell the rank, the process or the call of an event."""

    rank: Any = None
    device: Any = None
    correlation: Any = None
    name: Any = None


class Owner(msgspec.Struct):
    """What tells the rank of an event."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    args: Args | None = None


NO_ARGS = Args()
_decode_owner = msgspec.json.Decoder(Owner).decode


def read_owner(event: bytes | msgspec.Raw) -> Owner:
    """Read what tells the rank of an event; nothing of one that cannot be read."""
    try:
        owner = _decode_owner(event)
    except UNREADABLE:
        try:
            owner = _decode_owner(repair(bytes(event)))
        except UNREADABLE:  # counted as dropped when the trace was read
            return Owner()
    owner.pid = owner.pid if isinstance(owner.pid, int | str) else None
    owner.cat = owner.cat if isinstance(owner.cat, str) else None
    return owner


def in_order(group: Group) -> tuple[int, str]:
    """Return a key to sort groups: numbers, then names."""
    return (group, "") if isinstance(group, int) else (0, group)


def rank_of(owner: Owner) -> int | None:
    """Return the rank in the arguments of an event; None without a valid one."""
    with suppress(TypeError, ValueError, OverflowError):
        rank = int((owner.args or NO_ARGS).rank)
        return rank if 0 <= rank <= MAX_RANK else None
    return None


CallsById: TypeAlias = dict[Any, dict[int, float]]
"""Start of each call, or of the first work, by correlation id, for each group."""


def calls_by_id(places: Iterable[int], owners: Sequence[Owner], group_of: Callable[[int], Any]) -> CallsById:
    """Return the starts of the events at some places, those with a correlation id, by group."""
    calls: CallsById = defaultdict(dict)
    for place in places:
        number = _id_of(owners[place])
        if number:
            calls[group_of(place)].setdefault(number, _start_of(owners[place]))
    return calls


def _id_of(owner: Owner) -> int:
    number = (owner.args or NO_ARGS).correlation
    return number if isinstance(number, int) and number > 0 else 0


def _start_of(owner: Owner) -> float:
    with suppress(ValueError):
        return float(bytes(owner.ts).strip(b'"'))
    return 0.0


def _delay(calls: Mapping[int, float], work: Iterable[tuple[int, float]]) -> float | None:
    """Return the median delay of work after the calls with its ids; None if it is not theirs."""
    delays = sorted(start - calls[number] for number, start in work if number in calls)
    late = sum(delay < 0 for delay in delays)
    return delays[len(delays) // 2] if delays and late <= _MAX_LATE_SHARE * len(delays) else None


def pair_processes(callers: CallsById, by_rank: CallsById, unknown: set[Any]) -> list[tuple[Any, int]]:
    """Return the rank of processes: that with the shortest delays, and none twice while others have none."""
    costs = {
        (pid, rank): delay
        for pid in unknown
        for rank, work in by_rank.items()
        if rank is not None and (delay := _delay(callers[pid], work.items())) is not None
    }
    pairs: dict[Any, int] = {}
    for is_free in (True, False):
        for pid, rank in sorted(costs, key=lambda pair: costs[pair]):
            if pid not in pairs and not (is_free and rank in pairs.values()):
                pairs[pid] = rank
    return [*pairs.items()]


def give_work(
    calls: CallsById, places: Iterable[int], owners: Sequence[Owner]
) -> tuple[dict[int, Any], set[int]]:
    """Give each event of a device to the process that launched it.

    Args:
        calls: The calls of each process.
        places: Places of the events of devices.
        owners: All events.

    Returns:
        The process of each place, and the places of which it is not known but a guess.
    """
    by_device: dict[Any, list[int]] = defaultdict(list)
    for place in places:
        by_device[owners[place].pid, str((owners[place].args or NO_ARGS).device)].append(place)
    given: dict[int, Any] = {}
    unclear: set[int] = set()
    is_one_each = len(by_device) == len(calls)
    in_turn = cycle(sorted(calls, key=in_order))
    for device, group in zip(sorted(by_device, key=str), in_turn, strict=False):
        of_device = by_device[device]
        rows = [(_id_of(owners[place]), _start_of(owners[place])) for place in of_device]
        delays = sorted(
            (delay, str(group), group)
            for group, of in calls.items()
            if (delay := _delay(of, rows)) is not None
        )
        is_clear = bool(delays) and (len(delays) == 1 or delays[0][0] < _CLEARLY * delays[1][0])
        if is_clear and not _is_shared(calls, rows):
            given |= dict.fromkeys(of_device, delays[0][-1])
        elif is_one_each and not _is_shared(calls, rows):
            given |= dict.fromkeys(of_device, group)
            unclear |= {*of_device}
        else:
            _give_each(calls, of_device, owners, given, unclear)
    return given, unclear


def _is_shared(calls: CallsById, rows: Sequence[tuple[int, float]]) -> bool:
    """Whether several processes use a device: most ids of several processes have a row for each of them."""
    counts = Counter(number for number, _ in rows)
    callers = Counter(chain.from_iterable(calls.values()))
    repeated = [number for number in counts if callers[number] > 1]
    return 2 * sum(counts[number] == callers[number] for number in repeated) > len(repeated)


def _give_each(
    calls: CallsById, places: Iterable[int], owners: Sequence[Owner], given: dict[int, Any], unclear: set[int]
) -> None:
    """Give each row of a device that several processes may use to one of them."""
    by_id: dict[int, list[int]] = defaultdict(list)
    for place in places:
        by_id[_id_of(owners[place])].append(place)
    for number, rows in by_id.items():
        rows.sort(key=lambda place: _start_of(owners[place]))
        starts = [_start_of(owners[place]) for place in rows]
        callers = sorted((of[number], str(group), group) for group, of in calls.items() if number in of)
        groups = [group for *_, group in callers] or [next(iter(calls))]
        called = [start for start, *_ in callers]
        if len(groups) == 1:
            given |= dict.fromkeys(rows, groups[0])
        elif _is_only_match(called, starts):
            given |= dict(zip(rows, groups, strict=True))
        else:
            for number, (place, start) in enumerate(zip(rows, starts, strict=True)):
                earlier = bisect_right(called, start)
                latest = number if len(rows) == len(called) else max(earlier, 1) - 1
                given[place] = groups[0 if earlier == 1 else latest]
                unclear |= {place} if earlier != 1 else set()


def _is_only_match(called: Sequence[float], starts: Sequence[float]) -> bool:
    """Whether each call has one start after it only if they are taken in order, which is possible.

    Example:
        >>> _is_only_match([10, 15], [12, 19]), _is_only_match([10, 15], [18, 19])
        (True, False)
    """
    following = [*called[1:], float("inf")]
    return len(called) == len(starts) and all(
        call <= start < after for call, start, after in zip(called, starts, following, strict=True)
    )
