"""Readers: from a raw trace to a normalized run in the store."""

from tracekit.ingest.importer import Job, Progress, import_job, import_recording, import_traces, plan
from tracekit.ingest.write import Sample, import_unprofiled

__all__ = [
    "Job",
    "Progress",
    "Sample",
    "import_job",
    "import_recording",
    "import_traces",
    "import_unprofiled",
    "plan",
]
