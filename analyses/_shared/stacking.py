"""Concatenation of tables of several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def stacked(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables with the same columns; empty tables do not affect the types.

    Categories remain categories, sorted.

    Example:
        >>> stacked([pd.DataFrame({"n": [2, 1]}), pd.DataFrame({"n": [3]})])["n"].tolist()
        [2, 1, 3]
    """
    full = [part for part in parts if len(part)] or list(parts[:1])
    if len(full) == 1:
        return full[0].reset_index(drop=True)
    table = pd.concat(full, ignore_index=True)
    for name, kind in full[0].dtypes.items():
        if isinstance(kind, pd.CategoricalDtype):
            table[name] = pd.api.types.union_categoricals([part[name] for part in full], sort_categories=True)
    return table


def stacked_by_name(
    parts: Sequence[Mapping[str, pd.DataFrame]], names: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Concatenate tables by name, in the order of names; names without any table are omitted.

    Example:
        >>> one, other = {"a": pd.DataFrame({"n": [1]})}, {"a": pd.DataFrame({"n": [2]})}
        >>> stacked_by_name([one, {}, other], ["b", "a"])["a"]["n"].tolist()
        [1, 2]
    """
    found = {name: [part[name] for part in parts if name in part] for name in names}
    return {name: stacked(tables) for name, tables in found.items() if tables}
