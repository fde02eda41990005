"""The evaluator against the tables of CloudWatch's own documentation, and against periods, dimensions and edges."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.cloudwatch import AlarmRule, AlarmState, Missing, Sample, datapoints, evaluate, judge

OK, ALARM, NONE = AlarmState.OK, AlarmState.ALARM, AlarmState.INSUFFICIENT_DATA
KEPT = None
RULE = AlarmRule(
    namespace="Sluice",
    metric="DrainEtaMinutes",
    dimensions={"JobClass": "replays"},
    statistic="Maximum",
    period_s=60,
    comparison="GreaterThanThreshold",
    threshold=10.0,
    m=3,
    n=3,
    missing=Missing.MISSING,
)
POINTS = {"0": False, "X": True, "-": None}

# The documentation's rows: data points, then the state for missing, ignore, breaching, notBreaching.
THREE_OF_THREE = [
    ("0-X-X", OK, OK, OK, OK),
    ("0----", OK, OK, OK, OK),
    ("-----", NONE, KEPT, ALARM, OK),
    ("0XX-X", ALARM, ALARM, ALARM, ALARM),
    ("--X--", ALARM, KEPT, ALARM, OK),
]
TWO_OF_THREE = [
    ("0-X-X", ALARM, ALARM, ALARM, ALARM),
    ("00X0X", ALARM, ALARM, ALARM, ALARM),
    ("0-X--", OK, OK, ALARM, OK),
    ("----0", OK, OK, ALARM, OK),
    ("---X-", ALARM, KEPT, ALARM, OK),
]


@pytest.mark.parametrize("before", list(AlarmState))
@pytest.mark.parametrize(("m", "table"), [(3, THREE_OF_THREE), (2, TWO_OF_THREE)])
def test_the_documented_tables(
    m: int, table: list[tuple[str, AlarmState, AlarmState | None, AlarmState, AlarmState]], before: AlarmState
) -> None:
    for points, *states in table:
        for missing, state in zip(Missing, states, strict=True):
            judged = judge([POINTS[point] for point in points], replace(RULE, m=m, missing=missing), before)
            assert judged == (before if state is KEPT else state), f"{m} of 3, {points}, {missing}"


def samples(*values: float | None, start_s: int = 0, **changes: str) -> list[Sample]:
    """One value a minute, half a minute into it; None is a gap."""
    dimensions = {"JobClass": changes.get("job_class", "replays")}
    name = changes.get("name", RULE.metric)
    return [
        Sample(namespace="Sluice", name=name, dimensions=dimensions, at_ms=(start_s + n * 60 + 30) * 1000, value=value)
        for n, value in enumerate(values)
        if value is not None
    ]


def at(minutes: float) -> int:
    return int(minutes * 60_000)


def test_three_breaching_periods_are_an_alarm_and_the_running_one_does_not_count_yet() -> None:
    seen = samples(5, 11, 12, 13)

    assert evaluate(RULE, seen, now_ms=at(3.9), before=OK) is OK
    assert evaluate(RULE, seen, now_ms=at(4), before=OK) is ALARM
    assert evaluate(RULE, samples(11, 12, 13, 5), now_ms=at(4), before=ALARM) is OK


def test_another_class_another_metric_or_one_dimension_more_is_another_metric() -> None:
    other = [
        *samples(99, 99, 99, job_class="other"),
        *samples(99, 99, 99, name="PendingRows"),
        *(replace(point, dimensions={**point.dimensions, "service": "pacer"}) for point in samples(99, 99, 99)),
    ]
    assert evaluate(RULE, other, now_ms=at(3), before=OK) is NONE


def test_a_heartbeat_that_stops_is_an_alarm_by_missing_data_alone() -> None:
    beat = replace(
        RULE,
        metric="Ticks",
        statistic="Sum",
        comparison="LessThanThreshold",
        threshold=1,
        m=2,
        n=2,
        missing=Missing.BREACHING,
    )
    seen = samples(1, 1, 1, name="Ticks")

    assert evaluate(beat, seen, now_ms=at(3), before=OK) is OK
    for minutes in (4, 5, 6):
        assert evaluate(beat, seen, now_ms=at(minutes), before=OK) is OK, "real points in the range come first"
    assert evaluate(beat, seen, now_ms=at(7), before=OK) is ALARM, "four periods after the last tick, not two"
    assert evaluate(beat, [*seen, *samples(1, 1, start_s=420, name="Ticks")], now_ms=at(9), before=ALARM) is OK


def test_periods_are_aligned_and_a_statistic_goes_over_each() -> None:
    five_minutes = replace(RULE, period_s=300, n=1, m=1)
    seen = samples(*range(10))

    points = {
        statistic: datapoints(replace(five_minutes, statistic=statistic), seen, now_ms=at(11))
        for statistic in ("Sum", "Maximum", "Minimum", "Average", "SampleCount")
    }
    assert points == {
        "Sum": [None, 10, 35],
        "Maximum": [None, 4, 9],
        "Minimum": [None, 0, 5],
        "Average": [None, 2, 7],
        "SampleCount": [None, 5, 5],
    }


@pytest.mark.parametrize(
    ("comparison", "at_threshold"),
    [
        ("GreaterThanThreshold", OK),
        ("GreaterThanOrEqualToThreshold", ALARM),
        ("LessThanThreshold", OK),
        ("LessThanOrEqualToThreshold", ALARM),
    ],
)
def test_the_threshold_itself_breaches_only_where_it_is_said(comparison: str, at_threshold: AlarmState) -> None:
    rule = replace(RULE, comparison=comparison)

    assert evaluate(rule, samples(10, 10, 10), now_ms=at(3), before=OK) is at_threshold


def test_a_rule_is_read_from_a_template_with_cloudformation_s_defaults() -> None:
    properties = {
        "Namespace": "Sluice",
        "MetricName": "DrainEtaMinutes",
        "Dimensions": [{"Name": "JobClass", "Value": "replays"}],
        "Statistic": "Maximum",
        "Period": 60,
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 10,
        "EvaluationPeriods": 3,
    }
    assert AlarmRule.of(properties) == RULE
