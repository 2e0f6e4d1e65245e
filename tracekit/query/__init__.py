"""SQL over the tables of runs: read-only, and with no way out of them."""

from tracekit.query.guard import Statement, read
from tracekit.query.session import Answer, Limits, ask

__all__ = ["Answer", "Limits", "Statement", "ask", "read"]
