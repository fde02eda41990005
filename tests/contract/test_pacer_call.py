"""The pacer as an operator calls it: one attempt, one answer."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from shared.aws.clients import Clients
from shared.aws.trigger import LambdaPacer
from shared.domain.control import RunKey
from shared.errors import TriggerUnavailable

KEY = RunKey.of("replay", 1_796_040_000_000)


class Functions:
    """The Lambda service, as far as the pacer's caller sees it."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.configs: list[Config] = []

    def make(self, service: str, config: Config) -> Functions:
        assert service == "lambda"
        self.configs.append(config)
        return self

    def invoke(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def answered(value: object, **more: str) -> dict[str, Any]:
    return {"Payload": io.BytesIO(json.dumps(value).encode()), **more}


def pacer(functions: Functions) -> LambdaPacer:
    return LambdaPacer(Clients(functions.make), "pacer", timeout_s=45)


def test_it_asks_for_the_minute_as_the_schedule_does_and_says_what_came_of_it() -> None:
    functions = Functions(answered({"outcome": "closed", "admitted": 3}))
    assert pacer(functions).tick(KEY, source="schedule") == "closed"
    (asked,) = functions.asked
    assert asked["FunctionName"] == "pacer"
    assert "InvocationType" not in asked, "an event would not be answered"
    assert json.loads(asked["Payload"]) == {
        "job_class": "replay",
        "scheduled_at": "2026-11-30T12:00:00Z",
        "source": "schedule",
    }


def test_it_waits_for_as_long_as_the_pacer_may_take_and_never_asks_twice() -> None:
    functions = Functions(answered({"outcome": "closed"}))
    pacer(functions).tick(KEY, source="drill")
    (config,) = functions.configs
    assert config.read_timeout > 45
    assert config.retries["total_max_attempts"] == 1


@pytest.mark.parametrize(
    "answer",
    [
        answered({"errorType": "LedgerUnavailable"}, FunctionError="Unhandled"),
        answered(None),
        ReadTimeoutError(endpoint_url="lambda"),
        ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "Invoke"),
    ],
)
def test_a_pacer_that_fails_is_unavailable(answer: dict[str, Any] | Exception) -> None:
    with pytest.raises(TriggerUnavailable):
        pacer(Functions(answer)).tick(KEY, source="drill")
