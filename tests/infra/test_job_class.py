"""Per class and lane: queues, mappings, worker, schedule."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from infra.bundle import Bundle
from infra.job_class import models, rate, two_ticks_s
from shared.domain.job import Lane
from shared.domain.settings import Settings, UpstreamApi, UpstreamSettings
from tests.infra.conftest import synth_shape
from tests.infra.shape import Shape, arn, environment, text
from tests.infra.test_roles import role_of

LANES = [
    (job_class, prefix, lane)
    for job_class, prefix in (("replay_summary", "ReplaySummary"), ("session_sweep", "SessionSweep"))
    for lane in Lane
]


@pytest.mark.parametrize(("job_class", "prefix", "lane"), LANES)
def test_a_lane_is_a_high_throughput_fifo_queue_with_a_dead_letter_queue(
    shape: Shape, settings: Settings, job_class: str, prefix: str, lane: Lane
) -> None:
    name = f"{prefix}{lane.capitalize()}"
    for queue in (shape.properties(f"{name}Queue"), shape.properties(f"{name}DeadLetters")):
        assert queue["FifoQueue"] is True
        assert queue["ContentBasedDeduplication"] is False
        assert queue["DeduplicationScope"] == "messageGroup"
        assert queue["FifoThroughputLimit"] == "perMessageGroupId"
        assert queue["MessageRetentionPeriod"] == 14 * 86_400
        assert queue["SqsManagedSseEnabled"] is True
    queue = shape.properties(f"{name}Queue")
    expected = settings.classes[job_class]
    assert queue["VisibilityTimeout"] == expected.visibility_s
    assert queue["RedrivePolicy"] == {
        "deadLetterTargetArn": arn(f"{name}DeadLetters"),
        "maxReceiveCount": expected.max_receives,
    }


def test_no_mapping_reads_a_queue_whose_visibility_is_below_its_functions_timeout(shape: Shape) -> None:
    mappings = shape.of_type("AWS::Lambda::EventSourceMapping").values()
    assert len(mappings) == 8
    for mapping in mappings:
        queue = shape.properties(mapping["Properties"]["EventSourceArn"]["Fn::GetAtt"][0])
        function = shape.properties(mapping["Properties"]["FunctionName"]["Ref"])
        assert queue["VisibilityTimeout"] >= function["Timeout"]


@pytest.mark.parametrize(
    ("queue_id", "slots", "batch_size"),
    [
        ("ReplaySummaryLiveQueue", 6, 1),  # 0.3 of 20
        ("ReplaySummaryRecoveryQueue", 14, 1),
        ("SessionSweepLiveQueue", 3, 10),  # 0.9 of 5 would leave recovery less than the 2 that SQS wants
        ("SessionSweepRecoveryQueue", 2, 10),
    ],
)
def test_a_lanes_mapping_has_its_share_of_the_slots(shape: Shape, queue_id: str, slots: int, batch_size: int) -> None:
    mapping = shape.mapping_of(queue_id)["Properties"]
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": slots}
    assert mapping["BatchSize"] == batch_size


def test_every_mapping_reports_single_failures_and_waits_for_its_consumers_grants(shape: Shape) -> None:
    policies = set(shape.of_type("AWS::IAM::Policy"))
    for mapping in shape.of_type("AWS::Lambda::EventSourceMapping").values():
        assert mapping["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert "MaximumBatchingWindowInSeconds" not in mapping["Properties"]  # FIFO has none
        assert policies & set(mapping["DependsOn"])


@pytest.mark.parametrize(
    ("job_class", "prefix"), [("replay_summary", "ReplaySummary"), ("session_sweep", "SessionSweep")]
)
def test_a_worker_serves_its_own_class_and_may_continue_its_own_chain(
    shape: Shape, settings: Settings, job_class: str, prefix: str
) -> None:
    worker_id, worker = shape.the_function("sluice-worker", job_class=job_class)
    assert worker["Handler"] == "functions.worker.handler.handler"
    assert worker["Timeout"] == settings.classes[job_class].function_timeout_s
    assert worker["MemorySize"] == settings.classes[job_class].memory_mb
    assert worker["RecursiveLoop"] == "Allow"
    assert json.loads(text(environment(worker)["SLUICE_QUEUES"])) == {
        job_class: {"live": f"{prefix}LiveQueue", "recovery": f"{prefix}RecoveryQueue"}
    }
    for lane in Lane:
        mapping = shape.mapping_of(f"{prefix}{lane.capitalize()}Queue")["Properties"]
        assert mapping["FunctionName"] == {"Ref": worker_id}


def test_only_workers_are_excused_from_loop_detection(shape: Shape) -> None:
    for service in ("sluice-pacer", "sluice-dead-letter"):
        assert shape.the_function(service)[1]["RecursiveLoop"] == "Terminate"


def test_every_dead_letter_queue_feeds_the_one_reader(shape: Shape) -> None:
    reader_id, reader = shape.the_function("sluice-dead-letter")
    assert reader["Handler"] == "functions.dead_letter.handler.handler"
    for _, prefix, lane in LANES:
        mapping = shape.mapping_of(f"{prefix}{lane.capitalize()}DeadLetters")["Properties"]
        assert mapping["FunctionName"] == {"Ref": reader_id}


@pytest.mark.parametrize(
    ("job_class", "expression", "max_age_s"),
    [("replay_summary", "rate(1 minute)", 120), ("session_sweep", "rate(5 minutes)", 600)],
)
def test_a_schedule_ticks_the_pacer_with_the_scheduled_time(
    shape: Shape, job_class: str, expression: str, max_age_s: int
) -> None:
    (schedule,) = [
        each["Properties"]
        for each in shape.of_type("AWS::Scheduler::Schedule").values()
        if json.loads(each["Properties"]["Target"]["Input"])["job_class"] == job_class
    ]
    assert schedule["ScheduleExpression"] == expression
    assert schedule["ScheduleExpressionTimezone"] == "UTC"
    assert schedule["State"] == "ENABLED"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    target = schedule["Target"]
    assert target["Arn"] == arn(shape.the_function("sluice-pacer")[0])
    assert json.loads(target["Input"]) == {"job_class": job_class, "scheduled_at": "<aws.scheduler.scheduled-time>"}
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": max_age_s, "MaximumRetryAttempts": 3}
    assert target["DeadLetterConfig"] == {"Arn": arn("LostTicks")}


def test_the_schedules_dead_letter_queue_is_a_standard_one(shape: Shape) -> None:
    assert "FifoQueue" not in shape.properties("LostTicks")  # Scheduler cannot deliver to FIFO
    assert shape.properties("LostTicks")["MessageRetentionPeriod"] == 14 * 86_400


def test_the_pacer_serves_every_class_and_gives_up_on_a_tick_after_two_of_the_shortest(shape: Shape) -> None:
    pacer_id, pacer = shape.the_function("sluice-pacer")
    assert pacer["Handler"] == "functions.pacer.handler.handler"
    assert pacer["Timeout"] == 45
    assert json.loads(text(environment(pacer)["SLUICE_QUEUES"])) == {
        "replay_summary": {"live": "ReplaySummaryLiveQueue", "recovery": "ReplaySummaryRecoveryQueue"},
        "session_sweep": {"live": "SessionSweepLiveQueue", "recovery": "SessionSweepRecoveryQueue"},
    }
    shape.template.has_resource_properties(
        "AWS::Lambda::EventInvokeConfig",
        {
            "FunctionName": {"Ref": pacer_id},
            "Qualifier": "$LATEST",
            "MaximumEventAgeInSeconds": 120,
            "MaximumRetryAttempts": 2,
            "DestinationConfig": {"OnFailure": {"Destination": arn("LostTicks")}},
        },
    )


@pytest.mark.parametrize(
    ("interval_s", "max_age_s"),
    [
        (60, 120),
        (30, 60),
        (10, 60),  # what the scheduler accepts at least
        (50_000, 86_400),  # and at most
    ],
)
def test_a_tick_is_tried_for_at_most_two_intervals(interval_s: int, max_age_s: int) -> None:
    assert two_ticks_s(interval_s) == max_age_s


def test_a_rate_of_one_minute_is_singular() -> None:
    assert [rate(60), rate(120), rate(86_400)] == ["rate(1 minute)", "rate(2 minutes)", "rate(1440 minutes)"]


# -- the model that a worker may ask


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        ("some.model-v1:0", ["bedrock:AWS::Region::foundation-model/some.model-v1:0"]),
        (
            "eu.some.model-v1:0",  # a profile, and its model wherever the profile sends the call
            [
                "bedrock:*::foundation-model/some.model-v1:0",
                "bedrock:AWS::Region:AWS::AccountId:inference-profile/eu.some.model-v1:0",
            ],
        ),
        ("arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/x", None),
    ],
)
def test_a_worker_may_ask_the_one_model_of_its_upstream(shape: Shape, model: str, allowed: list[str] | None) -> None:
    upstream = UpstreamSettings(name="u", api=UpstreamApi.CONVERSE, model=model, limit_per_s=1)
    arns, _ = models(shape.stack, upstream)
    assert [text(shape.stack.resolve(arn)) for arn in arns] == (
        [model] if allowed is None else [f"arn:AWS::Partition:{each}" for each in allowed]
    )


def test_a_worker_of_another_upstream_may_ask_no_model(settings: Settings, bundle: Bundle) -> None:
    model = UpstreamSettings(name="inference", api=UpstreamApi.CONVERSE, model="some.model-v1:0", limit_per_s=8)
    shape = synth_shape(replace(settings, upstreams={"inference": model}), bundle, ephemeral=False)
    allowed = {
        name: shape.grants(role_of(shape.the_function("sluice-worker", job_class=name)[1])).get("bedrock:InvokeModel")
        for name in ("replay_summary", "session_sweep")
    }
    assert allowed == {
        "replay_summary": {"arn:AWS::Partition:bedrock:AWS::Region::foundation-model/some.model-v1:0"},
        "session_sweep": None,
    }
