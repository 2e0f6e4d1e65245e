"""Refusals of a length that a model has no positions for."""

from __future__ import annotations

from tracekit.errors import UnusableInputError


def at_most(workload: str, resolution: int, most: int) -> None:
    """Refuse more tokens than the model has positions.

    Raises:
        UnusableInputError: There are more.
    """
    if resolution > most:
        raise UnusableInputError(
            f"{workload} has {most} positions and cannot take --resolution {resolution}",
            hint=f"use --resolution {most} or less",
        )


def multiple_of(workload: str, resolution: int, chunk: int) -> None:
    """Refuse a length that is no whole number of chunks.

    Raises:
        UnusableInputError: It is not.
    """
    if resolution % chunk:
        raise UnusableInputError(
            f"{workload} reads chunks of {chunk} tokens and cannot take --resolution {resolution}",
            hint=f"use --resolution {(resolution // chunk + 1) * chunk}",
        )
