"""What is said of an upstream: reservations of permits, and the rate that was learned of it."""

from __future__ import annotations

from enum import StrEnum
from math import isfinite
from typing import TypeAlias

from msgspec import Struct

from shared.domain.settings import UpstreamSettings


class Granted(Struct, frozen=True, kw_only=True):
    """Permits whose calls may start at `start_ms` and then every `spacing_ms`, fractions included."""

    start_ms: float
    spacing_ms: float


class NoRoom(Struct, frozen=True, kw_only=True):
    """Nothing was reserved: the first free slot that was found, at `free_at_ms`, is later than asked for."""

    free_at_ms: float


Reservation: TypeAlias = Granted | NoRoom


class Decision(StrEnum):
    """What the last window led to. `untried`: it ran at a lower rate than the one in force, which stays."""

    INITIAL = "initial"
    UNUSED = "unused"
    UNTRIED = "untried"
    HELD = "held"
    TOLERATED = "tolerated"
    TRIMMED = "trimmed"
    WITHDRAWN = "withdrawn"
    DECREASED = "decreased"
    CLIMBED = "climbed"
    WAITED = "waited"
    PROBED = "probed"
    AT_CEILING = "at_ceiling"


class Learned(Struct, frozen=True, kw_only=True):
    """What the ledger remembers of an upstream's rate. Rates are calls per second; `pacer.rate` sets every field."""

    rate_per_s: float
    """The rate in force."""
    good_per_s: float
    """The highest rate that is known to be good: fully used and clean."""
    refused_per_s: float | None = None
    """The rate at which a window was last refused; None: none was."""
    previous_per_s: float | None = None
    """The rate in force before this one."""
    changed_ms: int = 0
    """When the rate in force was set."""
    window_ms: int = -1
    """The start of the last window that was decided on; -1 before the first."""
    probes: int = 0
    """Steps beyond the good rate, in a row. Below 0: clean windows to wait for before the next step."""
    refused_windows: int = 0
    """Refused windows in a row."""
    decision: Decision = Decision.INITIAL

    def __post_init__(self) -> None:
        checked_rate(self.rate_per_s, name="rate_per_s")
        checked_rate(self.good_per_s, name="good_per_s")
        for name, value in (("refused_per_s", self.refused_per_s), ("previous_per_s", self.previous_per_s)):
            if value is not None:
                checked_rate(value, name=name)


def checked_rate(rate_per_s: float, *, name: str) -> float:
    """The rate itself. ValueError naming it if it is 0, negative, NaN or infinite."""
    if isinstance(rate_per_s, bool) or not isfinite(rate_per_s) or rate_per_s <= 0:
        raise ValueError(f"{name} must be finite and above 0, got {rate_per_s}")
    return rate_per_s


def bounds_per_s(upstream: UpstreamSettings) -> tuple[float, float]:
    """Floor and ceiling of the learned rate. ValueError naming the setting that makes no such pair."""
    ceiling = checked_rate(upstream.limit_per_s, name="limit_per_s")
    share = checked_rate(upstream.floor_share, name="floor_share")
    if share > 1:
        raise ValueError(f"floor_share must be at most 1, got {share}")
    return ceiling * share, ceiling


def rate_in_force(learned: Learned | None, upstream: UpstreamSettings) -> float:
    """The one rate that feeds pacer and permits, within the bounds configured now; None: nothing is stored yet."""
    floor, ceiling = bounds_per_s(upstream)
    return ceiling if learned is None else min(max(floor, learned.rate_per_s), ceiling)
