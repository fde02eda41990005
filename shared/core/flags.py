"""Who wanted something, why and when: the signature under everything that a person changes (I10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SLUICE: Final = "sluice"
"""Who signs where nobody did: a class that stopped itself, after an abort or on an exhausted quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Stands on control for a pause, a halt and a switch, and on a row for an operator's move of it."""

    by: str
    why: str
    at_ms: int
