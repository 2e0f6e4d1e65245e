"""Fill a store with copies of a run, as in `python -m tests.large_store STORE RUN 5000`.

Copies are made by the store's own draft and commit, so that each is a whole run. Their tables are links to
the files of the first run.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.runs import START
from tracekit.runs.store import Store, new_run_id, timestamp
from tracekit.runs.tables import ENDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.runs.run import Run

WORKLOADS = ("resnet50", "bert", "gpt", "vgg16")


def fill(store: Store, runs: Sequence[Run], count: int) -> list[Run]:
    """Add copies of runs with workloads, batch sizes and labels that differ, one a minute, 25 of a commit."""
    return [_copied(store, runs[number % len(runs)], number) for number in range(count)]


def _copied(store: Store, run: Run, number: int) -> Run:
    created = START + timedelta(minutes=number)
    name = WORKLOADS[number % len(WORKLOADS)]
    workload = {"name": name, "mode": "train", "batch_size": 8 << number % 3, "device": "cpu"}
    meta = replace(
        run.meta,
        run_id=new_run_id(f"{name}-train", now=created),
        created_at=timestamp(created),
        label=f"trial {number}" if number % 10 == 0 else None,
        git=replace(run.meta.git, sha=f"{number // 25:040x}") if run.meta.git else None,
        workload=(run.meta.workload or {}) | workload,
        fingerprint=run.meta.fingerprint | {"workload": name, "batch_size": workload["batch_size"]},
    )
    with store.draft() as draft:
        for file in run.path.glob(f"*{ENDING}"):
            os.link(str(file), str(draft.path / file.name))
        return draft.commit(meta)


if __name__ == "__main__":
    folder, reference, wanted = sys.argv[1:]
    origin = Store(Path(folder)).resolve(reference)
    print(len(fill(Store(Path(folder)), [origin], int(wanted))))  # noqa: T201
