"""Checks of options for limits of a model's layers, to be used as `Workload.check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.workloads.base import Options


def batch_norm_check(name: str, *, side: int) -> Callable[[Options], None]:
    """Return a check that refuses to train on one image whose deepest layers see a single pixel.

    Args:
        name: Name of the workload.
        side: Largest resolution that leaves a single pixel.
    """

    def check(options: Options) -> None:
        if options.mode == "train" and options.batch_size == 1 and options.resolution <= side:
            raise UnusableInputError(
                f"{name} cannot train on one image of {options.resolution} pixels: "
                "batch normalization needs more than one value per channel",
                hint=f"use --batch-size 2 or --resolution {side + 1} or more",
            )

    return check


def positions_check(name: str, positions: int, *, chunk: int = 1) -> Callable[[Options], None]:
    """Return a check that refuses more tokens than a model has positions, or an incomplete last chunk.

    Args:
        name: Name of the workload.
        positions: Largest number of tokens.
        chunk: Tokens that the model reads together.
    """

    def check(options: Options) -> None:
        tokens = options.resolution
        if tokens > positions:
            raise UnusableInputError(
                f"{name} has {positions} positions and cannot take --resolution {tokens}",
                hint=f"use --resolution {positions} or less",
            )
        if tokens % chunk:
            raise UnusableInputError(
                f"{name} reads chunks of {chunk} tokens and cannot take --resolution {tokens}",
                hint=f"use --resolution {(tokens // chunk + 1) * chunk}",
            )

    return check
