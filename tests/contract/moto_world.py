"""moto with the one gap filled that the ledger needs: parametrised PartiQL INSERTs (pinned in test_moto_gaps.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moto import mock_aws
from moto.dynamodb.exceptions import ConditionalCheckFailed
from moto.dynamodb.models import DynamoDBBackend

_INSERT = re.compile(r'INSERT INTO "(?P<table>[\w.-]+)" VALUE \{(?P<names>.*)\}')


@contextmanager
def moto_aws() -> Iterator[None]:
    """An empty AWS account in this process. Not thread-safe: nothing about a race is proven on it (fact F34)."""
    with mock_aws(), patch.object(DynamoDBBackend, "batch_execute_statement", _batch_insert):
        yield


def _batch_insert(backend: DynamoDBBackend, statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_insert(backend, statement) for statement in statements]


def _insert(backend: DynamoDBBackend, statement: dict[str, Any]) -> dict[str, Any]:
    found = _INSERT.fullmatch(statement["Statement"])
    assert found is not None, "only the ledger's own INSERT is understood here"
    names = re.findall(r"'(\w+)': \?", found["names"])
    item = dict(zip(names, statement["Parameters"], strict=True))
    try:
        backend.put_item(found["table"], item, condition_expression="attribute_not_exists(pk)")
    except ConditionalCheckFailed:
        return {"Error": {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}}
    return {"TableName": found["table"]}
