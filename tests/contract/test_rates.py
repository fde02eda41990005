"""What was learned of an upstream: one decision a window, whoever makes it (I7, fact F36)."""

from __future__ import annotations

from msgspec.structs import replace

from shared.domain.settings import UpstreamSettings
from shared.domain.upstream import Decision, Learned
from shared.ports import Ledger, Limiter
from tests.contract.worlds import NOW_MS

FIRST = Learned(rate_per_s=7.25, good_per_s=8.0, refused_per_s=None, window_ms=60_000, decision=Decision.DECREASED)
NEXT = replace(FIRST, rate_per_s=7.5, refused_per_s=8.5, window_ms=120_000, decision=Decision.CLIMBED)


def test_what_was_learned_is_read_as_it_was_stored(ledger: Ledger) -> None:
    assert ledger.read_learned("inference") is None
    assert ledger.store_learned("inference", FIRST, before=None)
    assert ledger.read_learned("inference") == FIRST
    assert ledger.store_learned("inference", NEXT, before=FIRST)
    assert ledger.read_learned("inference") == NEXT
    assert ledger.read_learned("other") is None


def test_of_two_decisions_on_one_window_the_first_stands(ledger: Ledger) -> None:
    ledger.store_learned("inference", FIRST, before=None)
    ledger.store_learned("inference", NEXT, before=FIRST)
    assert not ledger.store_learned("inference", replace(NEXT, rate_per_s=1.0), before=FIRST)
    assert not ledger.store_learned("inference", replace(NEXT, rate_per_s=1.0), before=None)
    assert ledger.read_learned("inference") == NEXT


def test_storing_the_same_decision_again_is_ours(ledger: Ledger) -> None:
    ledger.store_learned("inference", FIRST, before=None)
    assert ledger.store_learned("inference", FIRST, before=None)


def test_a_hold_is_told_to_those_who_hold_permits_already(limiter: Limiter) -> None:
    upstream = UpstreamSettings(name="inference", endpoint="http://upstream", limit_per_s=10.0)
    assert limiter.held_until_ms(upstream) == 0
    limiter.reserve(upstream, calls=500, now_ms=NOW_MS, latest_ms=NOW_MS)  # reserved beyond the hold's end
    limiter.hold(upstream, until_ms=NOW_MS + 30_000)
    limiter.hold(upstream, until_ms=NOW_MS + 10_000)
    assert limiter.held_until_ms(upstream) == NOW_MS + 30_000
