"""Configurations: groups of comparable runs, and their differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tracekit.diff.model import Comparability
    from tracekit.run import Run

Kind: TypeAlias = "tuple[Any, Any, Any]"
"""Workload, mode and device."""
_KIND = ("workload", "mode", "device")
_MODES = ("train", "infer")


def kind(run: Run) -> Kind:
    """Return workload, mode and device of a run."""
    workload, mode, device = (run.meta.fingerprint.get(name) for name in _KIND)
    return workload, mode, device


def told(of: Kind) -> str:
    """Format a kind.

    Example:
        >>> told(("resnet50", "train", "cuda")), told((None, None, "cpu"))
        ('resnet50 train cuda', 'unnamed cpu')
    """
    return " ".join(str(one) for one in (of[0] or "unnamed", *of[1:]) if one is not None)


def alike(a: Run, b: Run, free: Collection[str]) -> bool:
    """Tell whether fingerprints match in all fields but the ignored; a missing field matches."""
    return not _apart(a.meta.fingerprint, b.meta.fingerprint, free)


def nearness(a: Run, b: Run, free: Collection[str]) -> int:
    """Count the fields in which two runs differ."""
    return len(_apart(a.meta.fingerprint, b.meta.fingerprint, free))


def _apart(a: dict[str, Any], b: dict[str, Any], free: Collection[str]) -> list[str]:
    return [name for name in a.keys() & b.keys() if name not in free and _differ(a[name], b[name])]


def _differ(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a != b


def groups(runs: Iterable[Run], free: Collection[str]) -> list[tuple[Run, ...]]:
    """Group runs by configuration: equal in all fields of the fingerprint that are not ignored."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        fields = {name: value for name, value in run.meta.fingerprint.items() if name not in free}
        found.setdefault(repr(sorted(fields.items(), key=str)), []).append(run)
    return [tuple(own) for own in found.values()]


def names(of: Sequence[Sequence[Run]]) -> list[str]:
    """Name the configurations; those of one kind also by the fields that differ."""
    first = [own[0] for own in of]
    return [_name(run, [other for other in first if kind(other) == kind(run)]) for run in first]


def _name(run: Run, same_kind: Sequence[Run]) -> str:
    prints = [one.meta.fingerprint for one in same_kind]
    fields = sorted(
        {name for each in prints for name in each if len({repr(p.get(name)) for p in prints}) > 1}
    )
    return ", ".join([told(kind(run)), *(f"{name} {run.meta.fingerprint.get(name)}" for name in fields)])


def unmeasured(head: Sequence[Run], base: Sequence[Run]) -> tuple[str, ...]:
    """Return the combinations of mode and device that were not measured.

    Only for workloads that the head has, where mode and device are known.
    """
    known = {kind(run) for run in (*head, *base)}
    workloads = {kind(run)[0] for run in head if None not in kind(run)}
    gpu = any(device == "cuda" for *_, device in known) or any(
        run.meta.environment.get("gpus") for run in head
    )
    devices = ("cpu", "cuda") if gpu else ("cpu",)
    wanted = {(name, mode, device) for name in workloads for mode in _MODES for device in devices}
    return tuple(sorted(told(one) for one in wanted - known))


def differences(base: Run, head: Run, varying: Sequence[str]) -> Comparability:
    """Return the differences of two runs, including the input shapes of ops."""
    from tracekit.diff import comparability, shapes, spans

    a, b = spans.shared(base, head)
    return comparability.compare(base, head, (shapes.read(base, a), shapes.read(head, b)), varying=varying)
