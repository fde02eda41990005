"""Which permissions a function's calls to AWS need: what it really asks for, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from botocore.client import BaseClient

Permission = tuple[str, str]
"""An action, and the name of what it is done to."""

_OF_A_TRANSACTION: Final = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
_OF_A_STATEMENT: Final = {
    "INSERT": "PartiQLInsert",
    "UPDATE": "PartiQLUpdate",
    "DELETE": "PartiQLDelete",
    "SELECT": "PartiQLSelect",
}
_SINGLE: Final = {"SendMessageBatch": "SendMessage", "DeleteMessageBatch": "DeleteMessage"}
"""A batch has no permission of its own."""

_MODEL_ACTION: Final = {"Converse": "bedrock:InvokeModel"}


def permissions(service: str, operation: str, request: Mapping[str, Any]) -> Iterator[Permission]:
    """What IAM is asked for one call."""
    if service == "dynamodb":
        yield from _of_rows(operation, request)
    else:
        action, resource = _OTHERS[service](operation, request)
        yield action, resource


def _of_rows(operation: str, request: Mapping[str, Any]) -> Iterator[Permission]:
    """A transaction needs the permissions of its parts, a statement that of its verb."""
    if operation == "TransactWriteItems":
        for part in request["TransactItems"]:
            ((verb, action),) = part.items()
            yield f"dynamodb:{_OF_A_TRANSACTION[verb]}", f"table {action['TableName']}"
    elif operation == "BatchExecuteStatement":
        for each in request["Statements"]:
            verb, _, rest = each["Statement"].partition(" ")
            yield f"dynamodb:{_OF_A_STATEMENT[verb]}", f"table {_quoted(rest)}"
    elif operation == "BatchGetItem":
        for table in request["RequestItems"]:
            yield f"dynamodb:{operation}", f"table {table}"
    else:
        index = f" index {request['IndexName']}" if "IndexName" in request else ""
        yield f"dynamodb:{operation}", f"table {request['TableName']}{index}"


def _quoted(text: str) -> str:
    """The name in the first pair of quotes."""
    return text.split('"')[1]


_OTHERS: Final[Mapping[str, Callable[[str, Mapping[str, Any]], Permission]]] = {
    "sqs": lambda operation, request: (
        f"sqs:{_SINGLE.get(operation, operation)}",
        f"queue {request['QueueUrl'].rpartition('/')[2]}",
    ),
    "s3": lambda operation, request: (f"s3:{operation}", f"objects {request['Key'].partition('/')[0]}/*"),
    "secretsmanager": lambda operation, request: (f"secretsmanager:{operation}", f"secret {request['SecretId']}"),
    "lambda": lambda operation, request: (f"lambda:{operation}Function", f"function {request['FunctionName']}"),
    "bedrock-runtime": lambda operation, request: (_MODEL_ACTION[operation], f"model {request['modelId']}"),
}


@dataclass(slots=True)
class Recorder:
    """What each function asked for, while `recording` it."""

    asked: dict[str, set[Permission]] = field(default_factory=dict)
    answers: dict[str, Callable[[], Any]] = field(default_factory=dict)
    """In place of AWS, by operation: what moto cannot do."""

    _now: str = ""

    @contextmanager
    def recording(self, function: str) -> Iterator[None]:
        self._now = function
        self.asked.setdefault(function, set())
        try:
            yield
        finally:
            self._now = ""

    @contextmanager
    def installed(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        real = BaseClient._make_api_call

        def call(client: Any, operation: str, request: Any) -> Any:
            if self._now:
                self.asked[self._now].update(permissions(client.meta.service_model.service_name, operation, request))
                if operation in self.answers:
                    return self.answers[operation]()
            return real(client, operation, request)

        with patch.context() as inner:
            inner.setattr(BaseClient, "_make_api_call", call)
            yield
