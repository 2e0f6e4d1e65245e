"""Reader of Nsight Systems: SQLite exports, folders of Parquet tables, and reports."""

from tracekit.ingest.nsys.report import is_nsys, is_parquet_export

__all__ = ["is_nsys", "is_parquet_export"]
