"""An attempt at a chunk ends once: what comes after a commit makes no waste of it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from shared.domain import stats
from shared.domain.job import Output
from shared.worker.message import Attempt


class Counted:
    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        self.found[name] += count


def attempt(tally: Counted, *, again: bool) -> Attempt:
    """Begun at 0 and looked at 700 ms later, with two answered calls."""
    times = iter([0, *[700] * 9])
    ports: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: next(times)))
    context: Any = SimpleNamespace(answered_calls=2)
    counted: Any = tally
    return Attempt(ports, counted, context, again=again)


@pytest.mark.parametrize(("again", "wasted"), [(False, 0), (True, 2)])
def test_a_committed_chunk_is_no_waste_whatever_ends_the_message_after_it(again: bool, wasted: int) -> None:
    tally = Counted()
    one = attempt(tally, again=again)
    one.committed(Output(cursor="", body="{}"), last=False)
    one.wasted()  # no permit for the next chunk, a lost race, a ledger that does not answer
    assert +tally.found == +Counter({stats.OUTPUTS: 1, stats.WASTED_CALLS: wasted})


def test_a_chunk_that_came_to_nothing_is_wasted_once() -> None:
    tally = Counted()
    one = attempt(tally, again=True)
    one.wasted()
    one.wasted()
    one.committed(None, last=True)
    assert tally.found == {stats.WASTED_MS: 700, stats.WASTED_CALLS: 2}
