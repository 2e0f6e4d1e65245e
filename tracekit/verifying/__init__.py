"""Whether what the store holds is what was put there: files, digests, columns, rows and their order."""

from tracekit.verifying.engine import verify
from tracekit.verifying.model import Damage, Kind, Verdict

__all__ = ["Damage", "Kind", "Verdict", "verify"]
