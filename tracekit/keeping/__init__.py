"""Results of analyses kept in the store, so that what was computed once is read the next time.

`shelf` finds, computes and keeps; `codec` is the form of a kept file; `code` is what tells that the program
which computed it is still the same. Nothing here is ever needed: whatever is missing, damaged or of something
else is computed again.
"""

from __future__ import annotations

from .shelf import FOLDER, Shelf

__all__ = ["FOLDER", "Shelf"]
