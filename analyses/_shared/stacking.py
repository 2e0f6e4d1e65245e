"""Rows that were found rank by rank, one behind the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def stacked(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of tables with the same columns; those without rows say nothing about types.

    Categories stay categories, in the order of their texts.

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
    """The same for tables by name, those of the names that any part has, in the order of the names.

    Example:
        >>> one, other = {"a": pd.DataFrame({"n": [1]})}, {"a": pd.DataFrame({"n": [2]})}
        >>> stacked_by_name([one, {}, other], ["b", "a"])["a"]["n"].tolist()
        [1, 2]
    """
    found = {name: [part[name] for part in parts if name in part] for name in names}
    return {name: stacked(tables) for name, tables in found.items() if tables}
