"""Who wanted something, why and when: the signature under everything that a person changes (I10)."""

from __future__ import annotations

from typing import Final

from shared.core.values import frozen

SLUICE: Final = "sluice"
"""Who signs where nobody did: a class that stopped itself, after an abort or on an exhausted quota."""


@frozen
class Flag:
    """Stands on control for a pause, a halt and a switch, and on a row for an operator's move of it."""

    by: str
    why: str
    at_ms: int
