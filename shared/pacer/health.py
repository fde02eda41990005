"""Whether a class stops by itself at this tick: its last windows, put before the rules of `pacer.abort`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, TypeAlias

from msgspec.structs import replace

from shared.domain import stats
from shared.domain.control import REPAIR_MARK, TickLine
from shared.domain.job import SLUICE, Flag
from shared.domain.settings import ClassSettings
from shared.domain.stats import StatsWindow
from shared.pacer.abort import Abort, Health, judge
from shared.pacer.cost import spent
from shared.pacer.snapshot import Gathered, windows_at
from shared.ports import Ports

LOOK_BACK_TICKS: Final = 10
"""Enough for the rules that compare windows, and for the ratio of the dead: at the end of a drain only what fails is
left, and for some minutes most rows that end are dead ones."""

LONGEST_LOOK_MINUTES: Final = 10
"""Of a longer interval its last minutes are judged, the same number of each."""


def stop_if_harmful(ports: Ports, settings: ClassSettings, seen: Gathered) -> Gathered:
    """Pause the class if its windows break a rule, before this tick has admitted anything. Nothing is deleted.

    A pause of an operator's is never replaced: a paused class is not judged.
    """
    if not seen.control.admits:
        return seen
    healths = _healths(ports, settings, seen)
    seen = replace(seen, spend_usd=sum(each.spend_usd for each in healths))
    found = judge(healths, settings.abort)
    if found is None:
        return seen
    flag = Flag(by=SLUICE, why=_why(found), at_ms=ports.clock.now_ms())
    if not ports.ledger.pause_unless_paused(settings.name, flag):
        return replace(seen, control=ports.ledger.read_control(settings.name), stage=None)
    ports.log.event("aborted", job_class=settings.name, reason=found.reason.value)
    return replace(seen, control=replace(seen.control, pause=flag), stage=None, abort=found)


def _why(found: Abort) -> str:
    return f"{found.reason.value}: {found.sentence}"


def _healths(ports: Ports, settings: ClassSettings, seen: Gathered) -> list[Health]:
    """One for each interval between ticks that admitted at full rate, oldest first; the last one ends now.

    Not across a pause or a staged recovery: a backlog grows in both, as it should.
    """
    if seen.stage is not None:
        return []
    before = _points(seen)
    ends = [*((line.at_ms, line.pending, line.oldest_age_s) for line in before[1:]), _now(seen)]
    minutes = min(LONGEST_LOOK_MINUTES, settings.tick_interval_s * 1000 // stats.WINDOW_MS)
    wanted = [_minutes_before(at_ms, minutes) for at_ms, _, _ in ends]
    windows = windows_at(ports, settings, seen, chain.from_iterable(wanted))
    return [
        _health(settings, seen, line, end, [windows[start_ms] for start_ms in minutes_ms])
        for line, end, minutes_ms in zip(before, ends, wanted, strict=False)
    ]


End: TypeAlias = tuple[int, int, int]
"""When an interval ended, and what was pending and how old the oldest row was by then."""


def _now(seen: Gathered) -> End:
    return seen.now_ms, seen.pending, seen.oldest_age_s


def _points(seen: Gathered) -> list[TickLine]:
    """The ticks since the last pause or staged recovery that admitted, oldest first; of one minute the last one."""
    resumed_ms = 0 if seen.control.resumed is None else seen.control.resumed.at_ms
    found: list[TickLine] = []
    minute_ms = stats.window_of(seen.now_ms)
    for line in reversed(seen.control.history):
        if line.paused or line.staged or line.at_ms < resumed_ms or len(found) == LOOK_BACK_TICKS:
            break
        if stats.window_of(line.at_ms) != minute_ms and not line.run_id.endswith(REPAIR_MARK):
            found.append(line)
            minute_ms = stats.window_of(line.at_ms)
    return found[::-1]


def _minutes_before(at_ms: int, minutes: int) -> list[int]:
    last_ms = stats.window_of(at_ms)
    return [last_ms - number * stats.WINDOW_MS for number in range(minutes, 0, -1)]


def _health(
    settings: ClassSettings, seen: Gathered, before: TickLine, end: End, counted: Sequence[StatsWindow]
) -> Health:
    at_ms, pending, oldest_age_s = end
    starts = stats.total(counted, stats.STARTS)
    service_s = seen.measures.service_s.value
    upstream = seen.upstream if at_ms == seen.now_ms else None
    time_s = max(0.0, (at_ms - before.at_ms) / 1000 - service_s)
    return Health(
        oldest_age_s=oldest_age_s,
        pending=pending,
        starts=starts,
        arrivals=max(0, pending - before.pending + stats.total(counted, *stats.ENDINGS)),
        completions=stats.total(counted, stats.COMPLETIONS),
        retries=stats.total(counted, *stats.RETRIED),
        deaths=stats.total(counted, stats.DEATHS),
        calls=0 if upstream is None else upstream.calls,
        allowance_calls=None if upstream is None else upstream.allowed_calls,
        spend_usd=_spend_usd(settings, seen, counted, rows=pending),
        due_completions=min(before.rate_per_s * time_s, before.admitted + before.in_flight),
    )


def _spend_usd(settings: ClassSettings, seen: Gathered, counted: Sequence[StatsWindow], *, rows: int) -> float:
    """Of these minutes, the upstream's tokens included where their price is known."""
    ticks = len(counted) * stats.WINDOW_MS / 1000 / settings.tick_interval_s
    return spent(counted, settings, ticks=ticks, rows=rows, prices=seen.prices).total_usd
