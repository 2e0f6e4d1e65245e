"""64-bit hashes of texts and of combinations: equal inputs give equal hashes in every process."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

Hashes: TypeAlias = npt.NDArray[np.uint64]

NOTHING = np.uint64(0)
_ODD = np.uint64(0x9E3779B97F4A7C15)


def mixed(values: Hashes) -> Hashes:
    """Every bit of a value spread over all bits (the finalizer of SplitMix64).

    Example:
        >>> mixed(np.array([0, 1], np.uint64)).tolist()
        [16294208416658607535, 10451216379200822465]
    """
    with np.errstate(over="ignore"):
        spread = values + _ODD
        spread = (spread ^ (spread >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Hashes = spread ^ (spread >> np.uint64(31))
    return result


def joined(first: Hashes, second: Hashes) -> Hashes:
    """One hash of two in this order."""
    with np.errstate(over="ignore"):
        return mixed(first * np.uint64(3) + mixed(second))


def of_texts(values: pd.Series, rename: Callable[[str], str] = str) -> Hashes:
    """Hash of each text, `NOTHING` where it is missing; each distinct text is looked at once.

    Args:
        values: Texts as categories.
        rename: Applied to each distinct text first.
    """
    import pandas as pd

    names = np.array([rename(str(name)) for name in values.cat.categories], object)
    hashes = pd.util.hash_array(names, categorize=False) if len(names) else np.empty(0, np.uint64)
    table = np.append(hashes.astype(np.uint64), NOTHING)
    found: Hashes = table[values.cat.codes.to_numpy()]  # the code of a missing text is -1: the last place
    return found
