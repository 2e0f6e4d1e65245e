"""Read what Nsight Systems recorded: its SQLite export, a folder of Parquet tables, or the report itself."""

from tracekit.ingest.nsys.report import is_nsys, is_parquet_export

__all__ = ["is_nsys", "is_parquet_export"]
