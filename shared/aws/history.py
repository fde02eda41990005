"""What the metrics said in the past hours, from CloudWatch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from shared.aws.clients import Clients, code_of
from shared.aws.metrics import DIMENSION
from shared.errors import HistoryUnavailable

_HOUR_S: Final = 3600


class CloudWatchHistory:
    def __init__(self, clients: Clients, namespace: str) -> None:
        self._clients = clients
        self._namespace = namespace

    def maxima(self, job_class: str, metric: str, *, since_ms: int, until_ms: int) -> list[float]:
        """One value an hour, at most a day of them in one answer. Every failure is `HistoryUnavailable`: what asks for
        the past can do without it."""
        try:
            found = self._clients.for_person("cloudwatch").get_metric_statistics(
                Namespace=self._namespace,
                MetricName=metric,
                Dimensions=[{"Name": DIMENSION, "Value": job_class}],
                StartTime=_moment(since_ms),
                EndTime=_moment(until_ms),
                Period=_HOUR_S,
                Statistics=["Maximum"],
            )
        except ClientError as error:
            raise HistoryUnavailable(code_of(error)) from error
        except BotoCoreError as error:
            raise HistoryUnavailable(type(error).__name__) from error
        points = sorted(found["Datapoints"], key=lambda point: point["Timestamp"])
        return [float(point["Maximum"]) for point in points]


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)
