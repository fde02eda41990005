"""The drain ETA: observed, never a lie, and never NaN, infinite or negative (I11)."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.domain.control import TickLine
from shared.domain.job import LaneCounts
from shared.pacer.forecast import DrainState, Eta, EtaTrend, drain_eta, eta_trend


def line(at_s: int, pending: int, *, paused: bool = False) -> TickLine:
    """A tick's line with the pending rows spread over all the places that count."""
    in_flight, behind, later = pending // 4, pending // 8, pending // 16
    return TickLine(
        run_id="",
        at_ms=at_s * 1000,
        paused=paused,
        waiting=LaneCounts(recovery=pending - in_flight - behind - later),
        later=later,
        behind=behind,
        in_flight=in_flight,
        dead=7,
        budget=0,
        admitted=0,
        confirmed=0,
        swept=0,
        rate_per_s=0.0,
        binding="edge",
        oldest_age_s=0,
        eta_s=None,
    )


def eta(points: list[tuple[int, int]], *, paused: bool = False) -> Eta:
    """The ETA at the last of the points (seconds, pending)."""
    history = [line(at_s, pending) for at_s, pending in points[:-1]]
    return drain_eta(history, now_ms=points[-1][0] * 1000, pending=points[-1][1], paused=paused)


def test_600_rows_that_fall_by_2_a_second_are_gone_in_300_s() -> None:
    assert eta([(0, 840), (60, 720), (120, 600)]) == Eta(state=DrainState.DRAINING, seconds=300.0, rate_per_s=2.0)


def test_the_first_tick_has_no_rate_yet() -> None:
    assert eta([(0, 600)]) == Eta(state=DrainState.MEASURING, seconds=None, rate_per_s=None)
    assert eta([(0, 600), (0, 590)]).state is DrainState.MEASURING


def test_nothing_pending_is_idle_and_over_now() -> None:
    assert eta([(0, 0)]) == Eta(state=DrainState.IDLE, seconds=0.0, rate_per_s=None)
    assert eta([(0, 60), (60, 0)]) == Eta(state=DrainState.IDLE, seconds=0.0, rate_per_s=1.0)
    assert eta([(0, 60), (60, 0)], paused=True).state is DrainState.IDLE


@pytest.mark.parametrize(
    ("pending", "state", "rate_per_s"), [(120, DrainState.GROWING, -1.0), (60, DrainState.STALLED, 0.0)]
)
def test_a_backlog_that_will_not_drain_says_so_instead_of_a_number(
    pending: int, state: DrainState, rate_per_s: float
) -> None:
    said = eta([(0, 60), (60, pending)])
    assert said == Eta(state=state, seconds=None, rate_per_s=rate_per_s)
    assert said.state.will_not_drain


def test_one_late_tick_does_not_move_the_eta() -> None:
    assert eta([(0, 1000), (60, 940), (179, 821), (180, 820), (240, 760)]).seconds == 760


def test_only_the_last_5_intervals_count() -> None:
    standstill = [(60 * tick, 10_000) for tick in range(9)]
    draining = [(540 + 60 * tick, 10_000 - 60 * tick) for tick in range(6)]
    assert eta(standstill + draining).rate_per_s == 1.0


def test_paused_time_is_not_working_time() -> None:
    history = [line(0, 1000), line(60, 940), line(120, 900, paused=True), line(7200, 900, paused=True), line(7260, 900)]
    resumed = drain_eta(history, now_ms=7_320_000, pending=840, paused=False)
    assert resumed == Eta(state=DrainState.DRAINING, seconds=840.0, rate_per_s=1.0)


def test_while_paused_no_end_is_promised_but_the_rate_before_is_known() -> None:
    history = [line(0, 1000), line(60, 940)]
    assert drain_eta(history, now_ms=120_000, pending=930, paused=True) == Eta(
        state=DrainState.PAUSED, seconds=None, rate_per_s=1.0
    )


@settings(deadline=None)
@given(
    history=st.lists(
        st.builds(line, st.integers(-(10**9), 10**12), st.integers(0, 10**9), paused=st.booleans()), max_size=15
    ),
    now_ms=st.integers(0, 10**15),
    pending=st.integers(0, 10**9),
    paused=st.booleans(),
)
def test_i11_seconds_are_finite_and_not_negative_and_there_only_where_a_drain_ends(
    history: list[TickLine], now_ms: int, pending: int, paused: bool
) -> None:
    said = drain_eta(history, now_ms=now_ms, pending=pending, paused=paused)
    ends = said.state in (DrainState.IDLE, DrainState.DRAINING)
    assert (said.seconds is not None) == ends
    assert said.seconds is None or (isfinite(said.seconds) and said.seconds >= 0)
    assert said.rate_per_s is None or isfinite(said.rate_per_s)


def trend(*etas_s: float | None) -> EtaTrend:
    """How the last of these ETAs moved against the ticks before it."""
    history = [replace(line(n * 60, 1), eta_s=each) for n, each in enumerate(etas_s[:-1])]
    return eta_trend(history, Eta(state=DrainState.DRAINING, seconds=etas_s[-1], rate_per_s=1.0))


def test_a_drain_that_keeps_its_pace_loses_an_interval_a_tick_and_does_not_accelerate() -> None:
    assert trend(600.0, 540.0, 480.0) == EtaTrend(change_s=-60.0, acceleration_s=0.0)


def test_an_eta_that_rises_faster_and_faster_says_both() -> None:
    assert trend(600.0, 610.0, 650.0) == EtaTrend(change_s=40.0, acceleration_s=30.0)


@pytest.mark.parametrize("etas_s", [(600.0,), (None, 600.0), (600.0, None), (540.0, None, 600.0)])
def test_where_a_tick_had_no_eta_there_is_no_change(etas_s: tuple[float | None, ...]) -> None:
    assert trend(*etas_s) == EtaTrend(change_s=None, acceleration_s=None)


def test_an_acceleration_needs_three_etas_in_a_row() -> None:
    assert trend(600.0, 540.0) == EtaTrend(change_s=-60.0, acceleration_s=None)
    assert trend(None, 600.0, 540.0).acceleration_s is None
