"""Geometric means of time and memory ratios over several pairs of eager and compiled runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.errors import UnusableInputError
from tracekit.measuring.metrics import DEVICE_PEAK, HOST_PEAK, STEP_TIME

from .._shared import declared
from .compare import VARYING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.diff import Diff
    from tracekit.run import Run

GEOMEAN = "geometric mean"
_METRICS = (STEP_TIME, DEVICE_PEAK, HOST_PEAK)


def geomeans(pairs: Iterable[tuple[Run, Run]]) -> pd.DataFrame:
    """Ratios of pairs of an eager and a compiled run, as in TorchBench's Fig. 3 and 4.

    Args:
        pairs: The eager run and the compiled run of each workload.

    Returns:
        One row per pair, then the geometric mean of each column over the pairs that have it: `speedup` (step
        time of the eager run over the compiled one's: above 1 is faster) and, head over base, the ratios of
        the peaks of device and host memory. Missing if a run of a pair did not measure it.

    Raises:
        UnusableInputError: The runs of a pair are not comparable.

    Example:
        >>> import tracekit
        >>> runs = tracekit.open("eager"), tracekit.open("compiled")  # doctest: +SKIP
        >>> geomeans([runs])["speedup"]  # doctest: +SKIP
    """
    rows = [_row(base, head) for base, head in pairs]
    table = pd.DataFrame(rows, columns=["pair", "speedup", DEVICE_PEAK, HOST_PEAK])
    values = table.drop(columns="pair").astype("float64")
    means = {str(name): _geomean(column.dropna()) for name, column in values.items()}
    return pd.concat([table, pd.DataFrame([{"pair": GEOMEAN, **means}])], ignore_index=True)


def _row(base: Run, head: Run) -> dict[str, object]:
    found = declared.between(base, head, VARYING)
    name = _name(head)
    if why := declared.refusal(found):
        raise UnusableInputError(f"{name}: {why}; leave the pair out")
    time, device, host = (_ratio(found, metric) for metric in _METRICS)
    return {"pair": name, "speedup": 1 / time if time else time, DEVICE_PEAK: device, HOST_PEAK: host}


def _name(run: Run) -> str:
    """Workload, mode and device of a run, or its id if it is an imported trace."""
    known = [run.meta.fingerprint.get(field) for field in ("workload", "mode", "device")]
    return " ".join(str(one) for one in known if one) if known[0] else run.id


def _ratio(found: Diff, name: str) -> float:
    return next((one.b / one.a for one in found.metrics if one.name == name and one.a and one.b), np.nan)


def _geomean(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios).mean())) if len(ratios) else float("nan")
