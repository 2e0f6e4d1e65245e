"""Assign NVML samples to the ranks of a program and to the numbers that the ranks give their devices.

A program may choose its devices itself, and each rank its own. So the collector samples the GPUs that it
expects the program to see, and afterwards compares their UUIDs with those that torch saw in each rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tracekit.ingest.write import Sample
from tracekit.runs.environment import bare_uuid, device_indices
from tracekit.runs.meta import Diagnostic, Level


@dataclass(frozen=True)
class View:
    """Devices of one rank."""

    rank: int
    # device index by UUID without prefix; empty if the rank did not initialize CUDA
    devices: Mapping[str, int]
    used: frozenset[int]  # device indices in whose memory it allocated; empty if unknown

    @classmethod
    def of(cls, rank: int, environment: Mapping[str, Any], used: Iterable[int | None]) -> View:
        """Return the view of a rank.

        Args:
            rank: The rank.
            environment: Its environment, as in `run.json`.
            used: Devices of its peaks of memory; None for samples of none.
        """
        indices = frozenset(device for device in used if device is not None)
        return cls(rank, device_indices(environment), indices)

    def index(self, sample: Sample) -> int | None:
        """Return the index of the GPU of a sample; None if the rank did not see it."""
        return self.devices.get(bare_uuid(sample.gpu))


def assign_samples(samples: Sequence[Sample], views: Sequence[View]) -> list[Sample]:
    """Return the samples with the rank and device index of the ranks that used their GPU.

    A GPU of several ranks that give it one index keeps one sample, without a rank; one that no rank saw has
    none. Without any view, or if NVML and torch know the GPUs by different UUIDs, as some MIG instances, the
    samples are left as they are.

    Args:
        samples: Samples of the collector; those of a GPU have its UUID.
        views: What each rank saw.
    """
    if not _have_common_uuids(samples, views):
        return list(samples)
    assigned = (_assign(sample, views) if sample.gpu else [sample] for sample in samples)
    return list(chain.from_iterable(assigned))


def _have_common_uuids(samples: Sequence[Sample], views: Sequence[View]) -> bool:
    """Return whether samples and views know the GPUs by the same UUIDs."""
    gpus = {sample.gpu for sample in samples if sample.gpu}
    bare = {bare_uuid(gpu) for gpu in gpus}
    # torch may give a MIG instance the UUID of its GPU
    instances = any(gpu.startswith("MIG-") for gpu in gpus)
    return any(bare & view.devices.keys() if instances else view.devices for view in views)


def _assign(sample: Sample, views: Sequence[View]) -> list[Sample]:
    """Return a copy of a sample for each rank that used its GPU, or, if none did, that saw it."""
    seeing = [view for view in views if view.index(sample) is not None]
    owners = [view for view in seeing if view.index(sample) in view.used] or seeing
    indices = {view.index(sample) for view in owners}
    if len(owners) > 1 and len(indices) == 1 and _unambiguous(sample, views):
        return [replace(sample, device=indices.pop())]
    return [replace(sample, rank=view.rank, device=view.index(sample)) for view in owners]


def _unambiguous(sample: Sample, views: Sequence[View]) -> bool:
    """Return whether no rank gives the index of a GPU to another one, as ranks with own devices do."""
    indices = {view.index(sample) for view in views} - {None}
    gpu = bare_uuid(sample.gpu)
    return not any(
        index in indices and other != gpu for view in views for other, index in view.devices.items()
    )


def report_unsampled(samples: Sequence[Sample], views: Sequence[View]) -> list[Diagnostic]:
    """Report used GPUs without samples: the program chose other devices than those it was given."""
    gpus = {bare_uuid(sample.gpu) for sample in samples if sample.gpu}
    missed = [
        f"device {index} of rank {view.rank}"
        for view in views
        for gpu, index in view.devices.items()
        if index in view.used and gpu not in gpus
    ]
    if not gpus or not missed or not _have_common_uuids(samples, views):
        return []
    message = f"NVML did not sample {', '.join(missed)}: the program set CUDA_VISIBLE_DEVICES itself"
    return [Diagnostic(Level.INFO, "nvml_not_sampled", f"{message}; set it for the command instead")]
