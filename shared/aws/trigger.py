"""The `Trigger`: the pacer as a Lambda function, invoked asynchronously."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from botocore.exceptions import ClientError

from shared.aws.clients import Clients, answered, code_of
from shared.core.runs import WEBHOOK, RunKey
from shared.errors import TriggerUnavailable


class LambdaTrigger:
    """Lambda repeats what fails, and may deliver twice: the run's row makes one tick of it (TRAPS 25)."""

    def __init__(self, clients: Clients, function_name: str) -> None:
        self._clients = clients
        self._function_name = function_name

    def start(self, key: RunKey) -> None:
        minute = datetime.fromtimestamp(key.minute_ms / 1000, tz=UTC)
        event = {"job_class": key.job_class, "scheduled_at": f"{minute:%Y-%m-%dT%H:%M:%SZ}", "source": WEBHOOK}
        try:
            with answered(TriggerUnavailable):
                self._clients.functions.invoke(
                    FunctionName=self._function_name, InvocationType="Event", Payload=json.dumps(event).encode()
                )
        except ClientError as error:
            raise TriggerUnavailable(code_of(error)) from error
