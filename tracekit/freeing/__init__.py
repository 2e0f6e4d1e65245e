"""What processes that are gone left in the store, in the caches and in the temporary folder, and freeing it.

Nothing of a process that lives is ever touched: `tracekit.owners` tells, by id, beginning and lock.
"""

from tracekit.freeing.engine import Freed, free, leftovers
from tracekit.freeing.model import Kind, Leftover

__all__ = ["Freed", "Kind", "Leftover", "free", "leftovers"]
