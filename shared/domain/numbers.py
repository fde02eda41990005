"""Exact arithmetic of rows. A file of its own: pacer, worker and operate count with it, and none imports another."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Final

NANO: Final = 10**9
"""Nano-rows in a row."""


def exact(value: float | Fraction, *, name: str) -> Fraction:
    """The number as it is written: 0.3 is 3/10. ValueError naming `name` if it is negative or not finite."""
    if not isfinite(value) or value < 0:
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return value if isinstance(value, Fraction) else Fraction(Decimal(str(value)))
