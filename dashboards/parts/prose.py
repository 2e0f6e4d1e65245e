"""Turn clauses of analyses into sentences."""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z]+(?=[ ,;:]|$)")
"""A plain word at the start; names of functions and options keep their spelling."""
_ENDED = (".", "?", "!", "…", ":")


def sentence(text: str) -> str:
    """Add a capital letter and a full stop where they are missing.

    Example:
        >>> sentence("no steps: mark them"), sentence("`a.b` is unknown"), sentence("torch.compile was off.")
        ('No steps: mark them.', '`a.b` is unknown.', 'torch.compile was off.')
    """
    text = text.strip()
    if not text:
        return text
    capitalized = text[0].upper() + text[1:] if _WORD.match(text) else text
    return capitalized if capitalized.endswith(_ENDED) else f"{capitalized}."
