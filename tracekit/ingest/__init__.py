"""Readers: from a raw trace to a normalized run in the store."""

from tracekit.ingest.importer import (
    Progress,
    import_job,
    import_recording,
    import_traces,
)
from tracekit.ingest.jobs import Job, plan
from tracekit.ingest.samples import Sample
from tracekit.ingest.unprofiled import import_unprofiled

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
