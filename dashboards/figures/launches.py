"""Launch configurations: blocks and threads per launch, and waves on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.render import human
from tracekit.schema import C

from .axis import whole
from .points import Dots, Limit, points

if TYPE_CHECKING:
    import pandas as pd

FULL = "at least one full wave"
LESS = "less than one wave"
UNKNOWN = "waves unknown"


def launch_map(configs: pd.DataFrame) -> dict[str, Any]:
    """Draw blocks over threads per block, by number of waves.

    Args:
        configs: Rows of `launch_config`'s `configs`, with `grid` and `block` as text.
    """
    threads = configs[C.BLOCK_X] * configs[C.BLOCK_Y] * configs[C.BLOCK_Z]
    frame = configs.assign(wide=threads, kind=[_kind(value) for value in configs["waves"]])
    frame = frame[(frame["wide"] > 0) & (frame["blocks"] > 0)]
    least = int(frame["wide"].min()).bit_length() - 1 if len(frame) else 5
    powers = [float(1 << exponent) for exponent in range(min(5, least), 11)]
    return points(
        [_dots(kind, frame[frame["kind"] == kind], "wide", "blocks") for kind in _kinds(frame)],
        x_title="threads per block",
        y_title="blocks per launch",
        x_ticks=(powers, [f"{power:g}" for power in powers]),
    )


def waves(configs: pd.DataFrame) -> dict[str, Any]:
    """Draw occupancy over waves; without recorded occupancy, resident blocks per SM over waves.

    Args:
        configs: As for `launch_map`.
    """
    launches = configs[configs["waves"].fillna(0) > 0]
    recorded = bool((launches["occupancy"].fillna(0) > 0).any())
    height = launches["occupancy"] * 100 if recorded else launches["resident_blocks"]
    frame = launches.assign(height=height, kind=[_kind(value) for value in launches["waves"]])
    frame = frame[frame["height"].fillna(0) > 0]
    ends = [float(frame["height"].min()), float(frame["height"].max())] if len(frame) else [1.0, 100.0]
    return points(
        [_dots(kind, frame[frame["kind"] == kind], "waves", "height") for kind in _kinds(frame)],
        [Limit("one wave", [1, 1], ends)],
        x_title="waves",
        y_title="occupancy (%)" if recorded else "resident blocks per SM",
    )


def _kind(value: float) -> str:
    if value != value:
        return UNKNOWN
    return FULL if value >= 1 else LESS


def _kinds(frame: pd.DataFrame) -> list[str]:
    return [kind for kind in (FULL, LESS, UNKNOWN) if (frame["kind"] == kind).any()]


def _dots(kind: str, frame: pd.DataFrame, x: str, y: str) -> Dots:
    wanted = ["op", "family", "grid", "block", "total_ns", "waves"]
    hover = [_hover(*row) for row in zip(*(frame[column] for column in wanted), strict=True)]
    weight = frame["share"].fillna(0)
    relative = (weight / (float(weight.max()) or 1.0)).tolist()
    return Dots(kind, frame[x].astype(float).tolist(), frame[y].astype(float).tolist(), hover, relative)


def _hover(op: str, family: str, grid: str, block: str, total_ns: int, made: float) -> str:
    lines = [
        whole(str(op) or "(no op recorded)"),
        whole(str(family)),
        f"grid {grid}, block {block}",
        human(int(total_ns), "ns"),
    ]
    return "<br>".join(lines if made != made else [*lines, f"{made:,.2f} waves"])
