"""Readers: from a raw trace to a normalized run in the store."""

from tracekit.ingest.importer import (
    Progress,
    import_job,
    import_recording,
    import_traces,
)
from tracekit.ingest.jobs import Job, plan
from tracekit.ingest.references import resolve
from tracekit.ingest.samples import Sample

__all__ = ["Job", "Progress", "Sample", "import_job", "import_recording", "import_traces", "plan", "resolve"]
