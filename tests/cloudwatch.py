"""CloudWatch's documented rules for one metric alarm, as a pure function: what state would it be in at this moment?

A local emulator keeps alarms but does not judge them. The rules are those of "Configuring how CloudWatch alarms treat
missing data": data points are periods aligned to the epoch; more of them are looked at than are evaluated; real ones go
first, newest first; and only if there are too few of them does the treatment of missing data fill the rest.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

LOOK_BACK_PERIODS: Final = 2
"""Periods looked at beyond those evaluated: CloudWatch's own tables show five for three, and name no number."""


class AlarmState(StrEnum):
    """In CloudWatch's words."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


class Missing(StrEnum):
    """How an alarm treats missing data, in CloudWatch's words."""

    MISSING = "missing"
    IGNORE = "ignore"
    BREACHING = "breaching"
    NOT_BREACHING = "notBreaching"


class Sample(Struct, frozen=True, kw_only=True):
    """One value that was published. Two samples belong to one metric only if all dimensions are the same."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    at_ms: int
    value: float


class AlarmRule(Struct, frozen=True, kw_only=True):
    """One deployed alarm. `m` of the newest `n` data points have to breach."""

    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: str
    period_s: int
    comparison: str
    threshold: float
    m: int
    n: int
    missing: Missing

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> AlarmRule:
        """From the properties of an AWS::CloudWatch::Alarm, references resolved."""
        return cls(
            namespace=properties["Namespace"],
            metric=properties["MetricName"],
            dimensions={pair["Name"]: pair["Value"] for pair in properties.get("Dimensions", ())},
            statistic=properties["Statistic"],
            period_s=int(properties["Period"]),
            comparison=properties["ComparisonOperator"],
            threshold=float(properties["Threshold"]),
            m=int(properties.get("DatapointsToAlarm", properties["EvaluationPeriods"])),
            n=int(properties["EvaluationPeriods"]),
            missing=Missing(properties.get("TreatMissingData", "missing")),
        )


_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}

_AGGREGATE: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "Sum": sum,
    "Maximum": max,
    "Minimum": min,
    "SampleCount": lambda values: float(len(values)),
    "Average": lambda values: sum(values) / len(values),
}


def evaluate(rule: AlarmRule, samples: Iterable[Sample], *, now_ms: int, before: AlarmState) -> AlarmState:
    """The state at `now_ms`, from whole periods that have ended; `before` is kept where missing data is ignored."""
    return judge([_breaches(rule, value) for value in datapoints(rule, samples, now_ms=now_ms)], rule, before)


def datapoints(rule: AlarmRule, samples: Iterable[Sample], *, now_ms: int) -> list[float | None]:
    """One value per period looked at, oldest first; None where nothing was published."""
    period_ms = rule.period_s * 1000
    end_ms = now_ms - now_ms % period_ms
    count = rule.n + LOOK_BACK_PERIODS
    values: list[list[float]] = [[] for _ in range(count)]
    for sample in samples:
        number = count - 1 - (end_ms - 1 - sample.at_ms) // period_ms
        if _is_of(rule, sample) and sample.at_ms < end_ms and number >= 0:
            values[number].append(sample.value)
    return [_AGGREGATE[rule.statistic](period) if period else None for period in values]


def judge(breaching: Sequence[bool | None], rule: AlarmRule, before: AlarmState) -> AlarmState:
    """From the data points, oldest first: breaching, not breaching or missing (None)."""
    real = [point for point in breaching if point is not None][-rule.n :]
    bad = sum(real)
    if len(real) == rule.n or bad >= rule.m:
        return AlarmState.ALARM if bad >= rule.m else AlarmState.OK
    if rule.missing is Missing.BREACHING:
        return AlarmState.ALARM if bad + rule.n - len(real) >= rule.m else AlarmState.OK
    if rule.missing is Missing.NOT_BREACHING or (real and bad < len(real)):
        return AlarmState.OK
    if rule.missing is Missing.IGNORE:
        return before
    # Nothing but breaching points is alarm enough; nothing at all is not enough to say anything.
    return AlarmState.ALARM if real else AlarmState.INSUFFICIENT_DATA


def _breaches(rule: AlarmRule, value: float | None) -> bool | None:
    return None if value is None else _COMPARE[rule.comparison](value, rule.threshold)


def _is_of(rule: AlarmRule, sample: Sample) -> bool:
    return (sample.namespace, sample.name) == (rule.namespace, rule.metric) and sample.dimensions == rule.dimensions


def samples_of(lines: Iterable[str]) -> Iterator[Sample]:
    """What CloudWatch would make of a function's output: one sample per metric of each embedded document."""
    for line in lines:
        document = _document(line)
        for group in document.get("_aws", {}).get("CloudWatchMetrics", []):
            for names in group["Dimensions"]:
                for metric in group["Metrics"]:
                    values = document[metric["Name"]]
                    for value in values if isinstance(values, list) else [values]:
                        yield Sample(
                            namespace=group["Namespace"],
                            name=metric["Name"],
                            dimensions={name: document[name] for name in names},
                            at_ms=document["_aws"]["Timestamp"],
                            value=value,
                        )


def _document(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
