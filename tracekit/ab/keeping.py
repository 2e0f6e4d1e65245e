"""Storage of one profile per side for `tracekit diff`."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import meta as run_meta

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.store import Store


def keep(store: Store, run: Run, *, label: str | None) -> Run:
    """Move a run from a local store into another store, with a label."""
    with store.draft() as draft:
        with store.writing():
            for path in Path(str(run.path)).iterdir():
                if path.name != run_meta.FILE_NAME:
                    shutil.move(path, draft.path / path.name)
        return draft.commit(replace(run.meta, label=label))
