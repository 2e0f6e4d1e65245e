"""Store a recording as a run: its metadata, its tables, and optionally the profiler's own file."""

from __future__ import annotations

import gzip
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tracekit import storage
from tracekit.ingest import artifacts
from tracekit.ingest.importer import import_recording, number_traces
from tracekit.ingest.nsys.report import SUFFIXES
from tracekit.ingest.write import write_samples
from tracekit.recording.collector import Recording
from tracekit.runs import redaction
from tracekit.runs.meta import OF_PROGRAM, UNPROFILED, Diagnostic, Level, RunMeta, fingerprint
from tracekit.runs.meta import Collector as CollectorMeta
from tracekit.runs.run import Run
from tracekit.runs.store import Draft, new_run_id, timestamp

RAW_TRACE = "trace.json.gz"
RAW_RANK = "trace-rank-{}.json.gz"
RAW_REPORT = "trace"
_BLOCK_BYTES = 1 << 20
_HOST_NAME = re.compile(rb'^\s*"host_name":')
_TRACE_NAME = re.compile(rb'"traceName":\s*"[^"]*"')


def store_run(
    draft: Draft, recording: Recording, meta: RunMeta, *, keep_trace: bool, profiled: bool = True
) -> Run:
    """Import a recording into the store of its draft.

    Args:
        draft: Draft with the files of the recording.
        recording: Result of the collector.
        meta: Metadata of the run.
        keep_trace: Whether to keep the profiler's own file in the run.
        profiled: Whether there are traces; if not, only timings and samples are stored.

    Raises:
        TracekitError: The recording cannot be imported, or the store cannot be written.
    """
    if not profiled:
        return _store_unprofiled(draft, recording, meta)
    raw = _save_raw_traces(recording.traces, draft) if keep_trace else []
    kernels = artifacts.read_recording(recording.compile_artifacts)
    run = import_recording(
        draft.store,
        recording.traces,
        meta,
        samples=recording.samples,
        kernels=kernels,
        stacks=recording.host_samples,
    )
    for path in raw:
        storage.move(path, run.path / path.name)
    return run


def _store_unprofiled(draft: Draft, recording: Recording, meta: RunMeta) -> Run:
    """Store timings and samples; the time of the first sample is the run's zero."""
    zero = min((sample.t_unix_ns for sample in recording.samples), default=time.time_ns())
    collector = replace(meta.collector, options={**meta.collector.options, **UNPROFILED})
    message = "recorded without a profile: the run has step times and samples, no intervals"
    notes = [*meta.diagnostics, Diagnostic(Level.INFO, "not_profiled", message)]
    # another draft: the recording's own has files that do not belong to the run
    with draft.store.draft() as stored, draft.store.convert_write_errors():
        write_samples(stored.path, recording.samples, zero)
        return stored.commit(replace(meta, t0_unix_ns=zero, collector=collector, diagnostics=notes))


def run_meta(
    title: str,
    recording: Recording,
    workload: dict[str, Any],
    *,
    collector: str,
    command: Sequence[str],
    now: datetime,
    diagnostics: Iterable[Diagnostic] = (),
) -> RunMeta:
    """Build the metadata of a run.

    Args:
        title: First part of the run id.
        recording: Result of the collector.
        workload: Recorded program and its options.
        collector: Registered name of the collector.
        command: Command that records the same again.
        now: Time of the recording.
        diagnostics: Diagnostics in addition to those of the recording.
    """
    return RunMeta(
        run_id=new_run_id(title, now=now),
        created_at=timestamp(now),
        t0_unix_ns=0,
        collector=CollectorMeta(collector, recording.version, recording.options),
        workload=workload,
        command=list(command),
        environment=recording.environment,
        fingerprint=fingerprint(workload, recording.environment, recording.options, collector=collector),
        timings=recording.timings,
        cpu_loads=list(recording.cpu_loads),
        diagnostics=[*recording.diagnostics, *diagnostics],
    )


def program_meta(
    name: str,
    recording: Recording,
    window: dict[str, Any],
    *,
    collector: str,
    command: Sequence[str],
    now: datetime,
) -> RunMeta:
    """Build the metadata of a run of the user's own code.

    Args:
        name: First part of the run id, and name of the workload.
        recording: Result of the collector.
        window: The recorded steps and other options.
        collector: Registered name of the collector.
        command: Command that records the same again.
        now: Time of the recording.
    """
    workload = {"name": name, "device": recording.device, "threads": recording.threads, **window}
    meta = run_meta(name, recording, workload, collector=collector, command=command, now=now)
    fields = {
        "world_size": max(1, len(recording.traces)),
        **{name: window.get(name) or None for name in OF_PROGRAM},
    }
    return replace(meta, fingerprint={**meta.fingerprint, **fields})


def _save_raw_traces(traces: Sequence[Path], draft: Draft) -> list[Path]:
    """Save the profiler's own files in a draft: its report if there is one, else a trace of each rank."""
    folder = draft.path / "raw"  # the profiler may have written a file of the same name
    with draft.store.convert_write_errors():
        folder.mkdir(exist_ok=True)
        for suffix in SUFFIXES:  # of reports from which a profiler made its trace
            report = traces[0].with_suffix(suffix)
            if report.is_file():
                return [Path(shutil.copyfile(report, folder / f"{RAW_REPORT}{suffix}"))]
        names = [RAW_TRACE, *map(RAW_RANK.format, number_traces(traces)[1:])]
        saved = [folder / name for name in names]
        for trace, path in zip(traces, saved, strict=True):
            with trace.open("rb") as source, gzip.open(path, "wb", compresslevel=4) as packed:
                while lines := source.readlines(_BLOCK_BYTES):
                    packed.write(_redact(lines))
    return saved


def _redact(lines: Sequence[bytes]) -> bytes:
    """Remove the host name, the path of the file, and what `tracekit.runs.redaction` redacts."""
    named = [
        _TRACE_NAME.sub(b'"traceName": "trace.json"', line) for line in lines if not _HOST_NAME.match(line)
    ]
    redacted = redaction.redact_texts([line.decode("utf-8", "surrogateescape") for line in named])
    return "".join(redacted).encode("utf-8", "surrogateescape")
