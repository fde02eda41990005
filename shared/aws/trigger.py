"""The pacer as a Lambda function: triggered by the webhook, or invoked by an operator who waits."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final

from botocore.exceptions import ClientError

from shared.aws.clients import Clients, answered, code_of
from shared.domain.control import WEBHOOK, RunKey
from shared.errors import TriggerUnavailable


class LambdaTrigger:
    """Lambda repeats what fails, and may deliver twice: the run's row makes one tick of it (fact F24)."""

    def __init__(self, clients: Clients, function_name: str) -> None:
        self._clients = clients
        self._function_name = function_name

    def start(self, key: RunKey) -> None:
        request = {"FunctionName": self._function_name, "Payload": _event(key, WEBHOOK)}
        try:
            with answered(TriggerUnavailable):
                self._clients.functions.invoke(InvocationType="Event", **request)
        except ClientError as error:
            raise TriggerUnavailable(code_of(error)) from error


_ANSWER_MARGIN_S: Final = 15.0
"""The client waits this much longer than the pacer may run, or it would give up on an answer that comes."""


class LambdaPacer:
    """`shared.operate.ports.Pacer`. Needs lambda:InvokeFunction on the pacer."""

    def __init__(self, clients: Clients, function_name: str, *, timeout_s: float) -> None:
        self._clients = clients
        self._function_name = function_name
        self._timeout_s = timeout_s

    def tick(self, key: RunKey, *, source: str) -> str:
        client = self._clients.awaited_functions(timeout_s=self._timeout_s + _ANSWER_MARGIN_S)
        try:
            with answered(TriggerUnavailable):
                answer = client.invoke(FunctionName=self._function_name, Payload=_event(key, source))
        except ClientError as error:
            raise TriggerUnavailable(code_of(error)) from error
        result = json.loads(answer["Payload"].read())
        if "FunctionError" in answer or not isinstance(result, dict):
            raise TriggerUnavailable("the pacer failed: its log says why")
        return str(result["outcome"])


def _event(key: RunKey, source: str) -> bytes:
    minute = datetime.fromtimestamp(key.minute_ms / 1000, tz=UTC)
    event = {"job_class": key.job_class, "scheduled_at": f"{minute:%Y-%m-%dT%H:%M:%SZ}", "source": source}
    return json.dumps(event).encode()
