"""Flame graph data: a call tree as columns that the browser draws on a canvas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.render.cells import clean
from tracekit.schema import C

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    Ints = npt.NDArray[np.int64]

FINEST = 20_000
"""Nodes shorter than the total divided by this are dropped; they would be narrower than a pixel."""
SIDES = {"host": ("host_total_ns", "host_self_ns"), "device": ("device_total_ns", "device_self_ns")}
_NAMED = 300
"""Maximum characters of a name."""


def flame(nodes: pd.DataFrame, side: str, *, finest: int = FINEST) -> dict[str, Any]:
    """Return the visible nodes below a root node and, with several ranks, a node per rank.

    Args:
        nodes: The table of the call tree, parents before children.
        side: Time that sets the width: `host` or `device`.
        finest: Nodes shorter than the total divided by this are dropped.

    Returns:
        Columns with one value per node, the names, and the number of dropped nodes. Parents are indices into
        the columns; the first node is the root.
    """
    total, own = (nodes[name].fillna(0).to_numpy(np.int64) for name in SIDES[side])
    roots = nodes["parent"].isna().to_numpy()
    grand_total = int(total[roots].sum())
    kept = np.flatnonzero((total > 0) & (total * finest >= grand_total))
    ranks = sorted(int(rank) for rank in nodes[C.RANK].unique())
    tops = [None, *ranks] if len(ranks) > 1 else [None]
    place = np.full(len(nodes), -1, np.int64)
    place[kept] = len(tops) + np.arange(len(kept))
    labels = [clean(str(name))[:_NAMED] for name in nodes[C.NAME].to_numpy()[kept]]
    names = list(dict.fromkeys([*(_top(rank) for rank in tops), *labels]))
    code = {name: at for at, name in enumerate(names)}
    rank_of = nodes[C.RANK].to_numpy(np.int64)
    sums = [int(total[roots & (True if rank is None else rank_of == rank)].sum()) for rank in tops]
    above = [-1, *[0] * (len(tops) - 1)]
    return {
        "side": side,
        "names": names,
        "name": [*(code[_top(rank)] for rank in tops), *(code[name] for name in labels)],
        "parent": [*above, *_parents(nodes, kept, place, ranks)],
        "total": [*sums, *total[kept].tolist()],
        "self": [*[0] * len(tops), *own[kept].tolist()],
        "calls": [*[0] * len(tops), *nodes["calls"].to_numpy(np.int64)[kept].tolist()],
        "left": len(nodes) - len(kept),
    }


def _top(rank: int | None) -> str:
    return "all" if rank is None else f"rank {rank}"


def _parents(nodes: pd.DataFrame, kept: Ints, place: Ints, ranks: list[int]) -> list[int]:
    """Return the index of each kept node's parent: a kept node, or the root of its rank."""
    position = {int(node): at for at, node in enumerate(nodes["node"])}
    over = nodes["parent"].fillna(-1).to_numpy(np.int64)[kept]
    rank_of = nodes[C.RANK].to_numpy(np.int64)[kept]
    alone = len(ranks) == 1
    return [
        int(place[position[int(parent)]]) if parent >= 0 else 0 if alone else 1 + ranks.index(int(rank))
        for parent, rank in zip(over, rank_of, strict=True)
    ]
