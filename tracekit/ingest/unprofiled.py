"""A run without a trace: step times and samples, and no interval."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.ingest.samples import Sample, write_samples
from tracekit.meta import UNPROFILED, Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.meta import RunMeta
    from tracekit.run import Run
    from tracekit.store import Store

_SAID = Diagnostic(
    Level.INFO, "not_profiled", "recorded without a profile: the run has step times and samples, no intervals"
)


def import_unprofiled(store: Store, meta: RunMeta, samples: Sequence[Sample]) -> Run:
    """Keep what was timed and sampled of a workload that no profiler watched.

    Args:
        store: Where the run goes.
        meta: What is known about the run; its zero, tables and diagnostics are completed here.
        samples: Rows of `counters`; the first of them is the run's zero.
    """
    zero = min((sample.t_unix_ns for sample in samples), default=time.time_ns())
    marked = replace(meta.collector, options={**meta.collector.options, **UNPROFILED})
    known = replace(meta, t0_unix_ns=zero, collector=marked, diagnostics=[*meta.diagnostics, _SAID])
    with store.draft() as draft, store.writing():
        write_samples(draft.path, samples, zero)
        return draft.commit(known)
