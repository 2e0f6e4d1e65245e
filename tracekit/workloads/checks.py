"""What networks with batch normalization cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.workloads.base import Options


def one_pixel(name: str, *, side: int) -> Callable[[Options], None]:
    """A check that refuses to train on one image so small that its deepest layers see one pixel.

    Args:
        name: The workload's.
        side: The largest resolution of which one pixel remains.
    """

    def check(options: Options) -> None:
        if options.mode == "train" and options.batch_size == 1 and options.resolution <= side:
            raise UnusableInputError(
                f"{name} cannot train on one image of {options.resolution} pixels: "
                "batch normalization needs more than one value per channel",
                hint=f"use --batch-size 2 or --resolution {side + 1} or more",
            )

    return check
