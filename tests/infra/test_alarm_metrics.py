"""Fact F29: what the pacer's handler prints, on moto, holds the metric and dimension of every alarm and panel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from functions.pacer import handler as entry
from functions.webhook import handler as webhook_entry
from shared.aws.runtime import ThreadParallel
from shared.aws.wiring import read_environment, wire
from shared.domain import stats
from shared.domain.job import NewJob
from shared.domain.settings import Settings
from shared.submit.submission import submit_jobs
from tests.cloudwatch import samples_of
from tests.contract.moto_world import moto_aws
from tests.contract.worlds import AwsWorld, aws_client
from tests.handlers.webhook_world import HandSecrets, a_gate, body_of
from tests.infra.shape import Shape
from tests.infra.test_alarms import alarms
from tests.infra.test_dashboard import widgets

TICKS = 3
"""An acceleration needs the ETA of three ticks."""


@dataclass(frozen=True, slots=True)
class Printed:
    """One metric as an EMF document names it."""

    namespace: str
    dimensions: tuple[tuple[str, str], ...]
    name: str


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 45_000


def printed(lines: str) -> set[Printed]:
    """Every metric that CloudWatch would make of these log lines."""
    return {
        Printed(each.namespace, tuple(sorted(each.dimensions.items())), each.name)
        for each in samples_of(lines.splitlines())
    }


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    with moto_aws():
        made = AwsWorld(aws_client())
        monkeypatch.setenv(
            "POWERTOOLS_SERVICE_NAME", made.name
        )  # a logger of its own, which writes to this test's output
        yield made


def tick_every_class(world: AwsWorld, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ticks of each class; what workers would have counted in the minutes before stands in the statistics."""
    urls = {lane.value: url for lane, url in world.urls.items()}
    names = {"SLUICE_TABLE": world.name, "SLUICE_BUCKET": world.name}
    environment = read_environment({**names, "SLUICE_QUEUES": json.dumps(dict.fromkeys(settings.classes, urls))})
    host = wire(environment, settings, clients=world.clients)
    host = replace(host, ports=replace(host.ports, parallel=ThreadParallel(1)))  # fact F34
    monkeypatch.setattr(entry, "host", lambda: host)
    now_ms = host.ports.clock.now_ms()
    counted = {stats.CALLS: 50, stats.REFUSALS: 2, stats.CHUNKS: 40, stats.COMPLETIONS: 40, stats.STARTS: 40}
    for name in settings.classes:
        for minutes in range(1, 4):
            counters = counted | {stats.bucket_name(900): 40}
            window_ms = stats.window_of(now_ms) - minutes * stats.WINDOW_MS
            host.ports.ledger.add_stats(name, window_ms=window_ms, shard=0, counters=counters)
        for number in range(TICKS):
            event = {"job_class": name, "scheduled_at": f"2026-11-30T12:{number:02d}:00Z"}
            assert entry.handler(event, Context())["outcome"] in ("closed", "skipped")
    submit_jobs(
        host.ports, settings, [NewJob(job_id="canary-job", job_class=name, match_id="canary", payload='"canary"')]
    )
    entry.handler({"job_class": name, "scheduled_at": "2026-11-30T12:30:00Z"}, Context())


PUBLISHED_BY_AWS = {
    # Namespace and metric -> its one dimension, and the type of resource that this names.
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible"): ("QueueName", "AWS::SQS::Queue"),
    ("AWS/Lambda", "Errors"): ("FunctionName", "AWS::Lambda::Function"),
}
"""The services' own metrics, as their documentation lists them: no function of ours prints these."""


def ours(shape: Shape, settings: Settings) -> set[Printed]:
    """What the alarms of a stack are on, less what AWS publishes, which is checked on the way."""
    found = set()
    for key, each in alarms(shape).items():
        dimensions = tuple((one["Name"], one["Value"]) for one in each["Dimensions"])
        if each["Namespace"] == settings.namespace:
            found.add(Printed(each["Namespace"], dimensions, each["MetricName"]))
            continue
        name, resource = PUBLISHED_BY_AWS[each["Namespace"], each["MetricName"]]
        assert [one for one, _ in dimensions] == [name], key
        (named,) = [value.get("Ref") or value["Fn::GetAtt"][0] for _, value in dimensions]
        assert named in shape.of_type(resource), key
    return found


def drawn(shape: Shape) -> set[Printed]:
    return {
        Printed(metric[0], ((metric[2], metric[3]),), metric[1])
        for widget in widgets(shape)
        for metric in widget["properties"].get("metrics", [])
    }


def test_every_alarm_and_panel_is_on_a_metric_that_the_pacer_prints(
    shape: Shape,
    settings: Settings,
    world: AwsWorld,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tick_every_class(world, settings, monkeypatch)
    output = capsys.readouterr().out
    found = printed(output)

    assert len(ours(shape, settings)) > 20
    assert ours(shape, settings) <= found, sorted(each.name for each in ours(shape, settings) - found)
    assert drawn(shape) <= found, sorted(each.name for each in drawn(shape) - found)
    assert "canary" not in output


def knock_in_every_way(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Admitted, admitted again, and refused for each reason that can befall any caller."""
    gate = a_gate(monkeypatch, settings=settings)
    (name,) = settings.webhook_classes
    for _ in range(2):
        assert gate.post(body_of(job_class=name)).status == 202
    assert gate.post(body_of(job_class=name), token="canary-of-a-guesser").status == 401
    for secrets in (HandSecrets(current=None, previous=None), HandSecrets(up=False)):
        assert a_gate(monkeypatch, settings=settings, secrets=secrets).post(body_of(job_class=name)).status == 503
    monkeypatch.setattr(webhook_entry, "webhook", lambda: 1 / 0)
    assert gate.post(body_of(job_class=name)).status == 503


def test_every_alarm_and_panel_of_a_stack_with_a_webhook_is_on_a_metric_that_it_or_the_pacer_prints(
    door_shape: Shape,
    door_settings: Settings,
    world: AwsWorld,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tick_every_class(world, door_settings, monkeypatch)
    knock_in_every_way(door_settings, monkeypatch)
    output = capsys.readouterr().out
    found, wanted = printed(output), ours(door_shape, door_settings)

    assert {"WebhookRefusedUnauthorized", "WebhookRefusedFault", "WebhookAccepted"} <= {each.name for each in wanted}
    assert wanted <= found, sorted(each.name for each in wanted - found)
    assert drawn(door_shape) <= found, sorted(each.name for each in drawn(door_shape) - found)
    assert "canary" not in output
