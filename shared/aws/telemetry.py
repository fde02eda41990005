"""The `Log` as one JSON line per decision, through Powertools' logger. The `Metrics` as CloudWatch's embedded metric
format: one line per set of values, with one dimension, the job class."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.constants import MAX_METRICS

from shared.ports import check_fields


class JsonLog:
    """`event` is the stable name to search for. Callers pass counts, classes and reason codes only (I12).

    The service is POWERTOOLS_SERVICE_NAME, the function's, unless given.

    Never the Lambda event: no `inject_lambda_context(log_event=...)`, it prints bearer tokens and payloads (fact F33).
    """

    def __init__(self, service: str | None = None) -> None:
        self._service = service
        self._made: Logger | None = None

    def event(self, name: str, **fields: int | float | str | bool | None) -> None:
        check_fields(fields)
        self._logger.info(name, extra={"event": name, **fields})

    @property
    def _logger(self) -> Logger:
        if self._made is None:
            # The code line would be this file's for every event.
            self._made = Logger(service=self._service, location=None)
        return self._made


DIMENSION: Final = "JobClass"
"""The one dimension of every metric: alarms and dashboards are made for it."""

_UNITS: Final = {
    "PerSecond": MetricUnit.CountPerSecond,
    "Milliseconds": MetricUnit.Milliseconds,
    "Seconds": MetricUnit.Seconds,
    "Bytes": MetricUnit.Bytes,
    "Percent": MetricUnit.Percent,
    "Minutes": MetricUnit.NoUnit,
    "Ratio": MetricUnit.NoUnit,
    "Usd": MetricUnit.NoUnit,
}
"""By the end of the name, first match first. CloudWatch has no unit for minutes, ratios, money; all else is counted."""

_PER_DOCUMENT: Final = MAX_METRICS - 1
"""At its own bound Powertools prints by itself, in the middle of what we are writing."""


class EmfMetrics:
    """A Powertools object per `emit`: a shared one would print two classes' values as one class's (fact F27).

    Without a namespace it is the function's own, POWERTOOLS_METRICS_NAMESPACE.
    """

    def __init__(self, namespace: str | None = None) -> None:
        self._namespace = namespace

    def emit(self, job_class: str, values: Mapping[str, float]) -> None:
        bad = sorted(name for name, value in values.items() if not math.isfinite(value))
        if bad:  # one of them would make CloudWatch drop the whole document
            raise ValueError(f"metrics that are not finite: {', '.join(bad)}")
        names = list(values)
        for start in range(0, len(names), _PER_DOCUMENT):
            self._print(job_class, {name: values[name] for name in names[start : start + _PER_DOCUMENT]})

    def _print(self, job_class: str, values: Mapping[str, float]) -> None:
        document = EphemeralMetrics(namespace=self._namespace)
        document.service = ""  # or POWERTOOLS_SERVICE_NAME adds a second dimension, and no alarm finds its metric
        document.add_dimension(DIMENSION, job_class)
        for name, value in values.items():
            document.add_metric(name, unit_of(name), value)
        # One write, so that threads cannot tear each other's lines apart.
        sys.stdout.write(json.dumps(document.serialize_metric_set(), separators=(",", ":"), allow_nan=False) + "\n")
        sys.stdout.flush()


def unit_of(name: str) -> str:
    """The CloudWatch unit that the end of a metric's name says."""
    units = (unit.value for suffix, unit in _UNITS.items() if name.endswith(suffix))
    return next(units, MetricUnit.Count.value)
