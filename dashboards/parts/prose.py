"""Prose of analyses as it stands on a page: each text a sentence of its own."""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z]+(?=[ ,;:]|$)")
"""A plain word at the start; names of functions, options and calls keep their spelling."""
_ENDED = (".", "?", "!", "…", ":")


def sentence(text: str) -> str:
    """The text with a capital and a full stop, where it has neither.

    Analyses say what was absent in a clause, which the command line prints after `note:`.

    Example:
        >>> sentence("no steps: mark them"), sentence("`a.b` is unknown"), sentence("torch.compile was off.")
        ('No steps: mark them.', '`a.b` is unknown.', 'torch.compile was off.')
    """
    text = text.strip()
    if not text:
        return text
    begun = text[0].upper() + text[1:] if _WORD.match(text) else text
    return begun if begun.endswith(_ENDED) else f"{begun}."
