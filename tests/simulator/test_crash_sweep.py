"""A crash at every port call of four small drains, and at pairs of them: nothing is lost, repeated or out of order."""

from __future__ import annotations

import pytest

from ops.simulator.crash_sweep import CHAINED, LIVE, ORDERED, SMALLEST, Small, crash, once, pairs_after

STRIDE = 23
"""CI takes every 23rd second crash; `python -m ops simulate --sweep pairs` takes them all."""


@pytest.mark.parametrize(
    ("small", "moves"),
    [
        (SMALLEST, {"claim", "finish"}),
        (CHAINED, {"continue", "commit"}),
        (ORDERED, {"hand_over"}),
        (LIVE, {"admit"}),
    ],
    ids=["smallest", "chained", "ordered", "live"],
)
def test_a_crash_at_every_port_call_is_healed(small: Small, moves: set[str]) -> None:
    runs = once(small)
    assert [run for run in runs if run.said] == []
    assert len(runs) > 40
    assert moves <= set(crash(small, ()).moves), "the scenario must use what it is there for"


def test_a_second_crash_after_every_first_one_is_healed_too() -> None:
    firsts = crash(SMALLEST, ()).later
    runs = [
        run
        for number, first in enumerate(firsts)
        for run in pairs_after(SMALLEST, first, stride=STRIDE, offset=number % STRIDE)
    ]
    assert [run for run in runs if run.said] == []
    assert len(runs) > 100


def test_the_points_come_from_the_run_and_a_read_is_one_point() -> None:
    clean = crash(SMALLEST, ())
    calls = {point.call for point in clean.later}
    assert calls == set(range(1, max(calls) + 1)), "every port call is a point"
    assert len(calls) < len(clean.later) < 2 * len(calls)
