"""Amounts as text, for titles and advice."""

from __future__ import annotations

from tracekit.render.cells import SIZES, TIMES, human


def duration(ns: int) -> str:
    """Format a time with three digits.

    Example:
        >>> duration(12_345_678), duration(900)
        ('12.3 ms', '900 ns')
    """
    return _text(ns, TIMES, "ns")


def size(count: int) -> str:
    """Format an amount of memory with three digits, in powers of 1,024.

    Example:
        >>> size(1_572_864), size(-2048)
        ('1.5 MiB', '-2 KiB')
    """
    return _text(count, SIZES, "B")


def percent(share: float) -> str:
    """Format a share in percent.

    Example:
        >>> percent(0.1234)
        '12.3%'
    """
    return human(share, "share")


def _text(amount: int, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    for factor, unit in units:
        if abs(amount) >= factor:
            value = amount / factor
            digits = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
            return f"{digits} {unit}"
    return f"{amount} {smallest}"
