"""The deployed alarms, judged by CloudWatch's rules over what real ticks emit in virtual time: each goes to ALARM for
its own reason, and back when that is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from infra.bundle import Bundle
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS
from shared.domain.job import SLUICE, Flag, NewJob
from shared.domain.settings import AbortRules, RetrySettings, Settings
from shared.operate import jobs as operator_jobs
from tests.cloudwatch import AlarmRule, AlarmState, Sample, evaluate
from tests.infra.conftest import synth_shape
from tests.infra.test_alarms import alarms, heading
from tests.worlds import CLASS, MINUTE_MS, jobs, settings

ALARM, OK = AlarmState.ALARM, AlarmState.OK
Rules = dict[str, AlarmRule]


@pytest.fixture(scope="module")
def rules_of(bundle: Bundle) -> Callable[[Settings], Rules]:
    """The alarms of the one class, by their runbook heading, as a deployment of these settings has them."""

    def found(given: Settings) -> Rules:
        shape = synth_shape(given, bundle, ephemeral=False)
        own = [each for each in alarms(shape).values() if each["Namespace"] == given.namespace]
        return {heading(each): AlarmRule.of(each) for each in own}

    return found


class Watch:
    """A world whose alarms are judged once a minute."""

    def __init__(self, sluice: SimSluice, rules: Rules) -> None:
        self.sluice = sluice
        self._rules = rules
        self.states = dict.fromkeys(rules, AlarmState.INSUFFICIENT_DATA)
        self.raised: list[str] = []

    def minutes(self, count: int) -> Watch:
        for _ in range(count):
            self.sluice.run(MINUTE_MS)
            self._judge()
        return self

    def until(self, name: str, state: AlarmState, *, within: int) -> Watch:
        waited = 0
        while self.states[name] is not state and waited < within:
            self.minutes(1)
            waited += 1
        assert self.states[name] is state, f"{name} is {self.states[name]} after {within} minutes: {self.states}"
        return self

    def _judge(self) -> None:
        namespace = self.sluice.settings.namespace
        samples = [
            Sample(
                namespace=namespace,
                name=name,
                dimensions={"JobClass": each.job_class},
                at_ms=each.at_ms,
                value=value,
            )
            for each in self.sluice.metrics.sets[-40:]
            for name, value in each.values.items()
        ]
        for name, rule in self._rules.items():
            after = evaluate(rule, samples, now_ms=self.sluice.world.now_ms, before=self.states[name])
            if after is ALARM and self.states[name] is not ALARM:
                self.raised.append(name)
            self.states[name] = after


START_MINUTES = 3
TWENTY_A_MINUTE: dict[str, Any] = {"slots": 4, "declared_service_s": 12.0}


def watch(rules_of: Callable[[Settings], Rules], *, truth: UpstreamTruth | None = None, **changes: Any) -> Watch:
    given = settings(**(TWENTY_A_MINUTE | changes))
    truths = None if truth is None else {"inference": truth}
    seen = Watch(SimSluice(given, 5, truths=truths), rules_of(given)).minutes(START_MINUTES)
    assert set(seen.raised) <= {"notick"}, "before its first tick a class has none, and says so"
    seen.raised.clear()
    return seen


def long_jobs(count: int, name: str = "j") -> list[NewJob]:
    return jobs(count, name=name, chunk_ms=11_000)


def test_a_healthy_drain_raises_nothing(rules_of: Callable[[Settings], Rules]) -> None:
    seen = watch(rules_of)
    seen.sluice.submit(long_jobs(300))
    seen.minutes(40)

    assert seen.raised == []
    assert seen.sluice.ledger.open_rows == 0


def test_the_eta_over_its_objective(rules_of: Callable[[Settings], Rules]) -> None:
    seen = watch(rules_of, eta_objective_s=600.0)
    seen.sluice.submit(long_jobs(400))

    seen.until("draineta", ALARM, within=12).until("draineta", OK, within=40)


def test_more_arrives_than_is_finished(rules_of: Callable[[Settings], Rules]) -> None:
    """The ETA grows, then there is none, then the burst is over."""
    seen = watch(rules_of)
    seen.sluice.submit(long_jobs(200))
    seen.minutes(6)
    assert seen.raised == []
    for minute in range(12):
        seen.sluice.submit(long_jobs(14 + 2 * minute, name=f"burst{minute}-"))
        seen.minutes(1)
    assert {"drainetagrowing", "drainstalled"} <= set(seen.raised)
    seen.until("drainstalled", OK, within=15).until("drainetagrowing", OK, within=5)


def test_no_worker_runs(rules_of: Callable[[Settings], Rules]) -> None:
    seen = watch(rules_of)
    seen.sluice.submit(long_jobs(200))
    seen.minutes(4)
    for mapping in seen.sluice.mappings:
        mapping.enabled = False
    seen.until("drainstalled", ALARM, within=12).until("nostarts", ALARM, within=20)
    for mapping in seen.sluice.mappings:
        mapping.enabled = True
        mapping.poke()
    seen.until("nostarts", OK, within=10).until("drainstalled", OK, within=10)


def test_the_heartbeat_stops(rules_of: Callable[[Settings], Rules]) -> None:
    seen = watch(rules_of)
    seen.sluice.schedules[CLASS].enabled = False
    seen.until("notick", ALARM, within=6)
    seen.sluice.schedules[CLASS].enabled = True
    seen.until("notick", OK, within=6)


def test_a_dead_job_and_an_operator_s_word(rules_of: Callable[[Settings], Rules]) -> None:
    retry = RetrySettings(max_attempts=2, base_delay_s=1.0, max_delay_s=2.0)
    seen = watch(rules_of, retry=retry)
    seen.sluice.submit([NewJob(job_id="poison", job_class=CLASS, match_id="m", payload="[]")])
    seen.until("deadrows", ALARM, within=8)
    signature = Flag(by="ada", why="nobody needs it", at_ms=START_MS)
    own = seen.sluice.settings.classes[CLASS]
    seen.sluice.command(
        "skip", lambda: operator_jobs.skip(seen.sluice.ports, own, "poison", signature=signature, nonce="op")
    )
    seen.until("deadrows", OK, within=4)


def test_the_upstream_refuses_and_the_rate_follows(rules_of: Callable[[Settings], Rules]) -> None:
    truth = UpstreamTruth(limit_per_s=0.5, changes=((START_MS + 15 * MINUTE_MS, 8.0),), bucket_calls=1)
    seen = watch(rules_of, truth=truth, limit_per_s=8.0, declared_service_s=0.5, slots=20)
    seen.sluice.submit(jobs(3000))

    seen.until("refusals", ALARM, within=12).until("refusals", OK, within=25)


def test_a_forgotten_pause_shows_as_the_oldest_row_s_age(rules_of: Callable[[Settings], Rules]) -> None:
    seen = watch(rules_of, age_objective_s=300.0)
    seen.sluice.submit(long_jobs(20))
    seen.sluice.pause(CLASS)
    seen.until("oldestage", ALARM, within=12)
    assert "nostarts" not in seen.raised, "somebody wants it so"
    seen.sluice.resume(CLASS)
    seen.until("oldestage", OK, within=8)


def test_a_class_that_stopped_itself_waits_for_a_person(rules_of: Callable[[Settings], Rules]) -> None:
    seen = watch(rules_of)
    seen.sluice.pause(CLASS)
    seen.minutes(3)
    assert seen.raised == [], "an operator knows of his own pause"
    seen.sluice.ledger.set_pause(CLASS, Flag(by=SLUICE, why="dead_ratio: 12 of 40", at_ms=START_MS))
    seen.until("stoppeditself", ALARM, within=4).minutes(5)
    assert seen.states["stoppeditself"] is ALARM, "it does not get better by itself"
    seen.sluice.resume(CLASS)
    seen.until("stoppeditself", OK, within=4)


def test_the_spend_nears_its_bound_before_the_class_stops_itself(rules_of: Callable[[Settings], Rules]) -> None:
    """Fifteen jobs of eleven seconds a minute cost about 0.011 USD in ten ticks; the alarm is at 0.010."""
    seen = watch(rules_of, abort=replace(AbortRules.off(), spend_usd=0.0125))
    seen.sluice.submit(long_jobs(300))

    seen.until("spend", ALARM, within=16)
    assert "stoppeditself" not in seen.raised, "somebody may still decide"
    seen.until("spend", OK, within=30)
