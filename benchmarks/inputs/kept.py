"""Files that are made once: beside what was made stands how, and it is made again when that changes."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FACTS = "facts.json"
_HERE = Path(__file__).parent
_CODE = [*sorted(_HERE.glob("*.py")), _HERE.parent / "amplify.py", _HERE.parent / "amplify_nsys.py"]


def kept(folder: Path, source: Path, make: Callable[[Path], dict[str, int]], **how: object) -> dict[str, int]:
    """What is known of a folder's content, made by `make` where it is not there already.

    Args:
        folder: Where it is; it appears whole or not at all.
        source: What it is made from.
        make: Fills an empty folder and says what is in it.
        how: What else decides what comes out.
    """
    made_from = _digest(source, how)
    try:
        facts = json.loads((folder / _FACTS).read_text())
        if facts.pop("made_from") == made_from:
            return dict(facts)
    except (OSError, ValueError, KeyError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    draft = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    facts = make(draft)
    (draft / _FACTS).write_text(json.dumps({**facts, "made_from": made_from}))
    draft.rename(folder)
    return facts


def _digest(source: Path, how: dict[str, object]) -> str:
    digest = hashlib.sha256(json.dumps(how, sort_keys=True, default=str).encode())
    for path in (source, *_CODE):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
