"""Where each item of the one table stands (protocol: the ledger). Final: changing a key means moving every row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from shared.domain.control import RunKey

Attribute: TypeAlias = dict[str, Any]
"""One value as DynamoDB writes it: a type tag and the value."""
Item: TypeAlias = dict[str, Attribute]

INDEX: Final = "work"
"""The sparse index: only rows that have these two attributes stand in it."""
PARTITION: Final = "work_partition"
POSITION: Final = "work_position"

_JOB: Final = "JOB#"
"""Begins the partition of a job: its row and its outputs."""
_OUT: Final = "OUT#"
"""Begins the sort key of an output, which ends with its cursor."""


def _key(pk: str, sk: str) -> Item:
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def job(job_id: str) -> Item:
    return _key(_JOB + job_id, "JOB")


def job_id_of(item: Item) -> str:
    return str(item["pk"]["S"]).removeprefix(_JOB)


def output(job_id: str, cursor: str) -> Item:
    return _key(_JOB + job_id, _OUT + cursor)


def outputs(job_id: str) -> tuple[Attribute, Attribute]:
    """The partition of a job's outputs, and the prefix of their sort keys."""
    return {"S": _JOB + job_id}, {"S": _OUT}


def cursor_of(item: Item) -> str:
    return str(item["sk"]["S"]).removeprefix(_OUT)


def run(key: RunKey) -> Item:
    """A repair stands beside its minute's run, where a role that may only put runs cannot reach it."""
    name = "REPAIR" if key.repair else "RUN"
    return _key(f"{name}#{key.job_class}#{_minute(key.minute_ms)}", name)


def control(job_class: str) -> Item:
    return _key(f"CLASS#{job_class}", "CONTROL")


def allowance(job_class: str) -> Item:
    return _key(f"ALLOWANCE#{job_class}", "ALLOWANCE")


def stats(job_class: str, window_ms: int, shard: int) -> Item:
    return _key(f"STATS#{job_class}#{_minute(window_ms)}#{shard}", "STATS")


def match(job_class: str, match_id: str) -> Item:
    return _key(f"MATCH#{job_class}#{match_id}", "MATCH")


def place_in_match(job_class: str, match_id: str, seq: int) -> Item:
    return _key(f"MATCH#{job_class}#{match_id}", f"{seq:012d}")


def upstream(name: str, shard: int = 0) -> Item:
    """One of the items that an upstream's permits lie in, each in a partition of its own. The first bears no number."""
    return _key(f"UPSTREAM#{name}#{shard}" if shard else f"UPSTREAM#{name}", "UPSTREAM")


def learned(upstream_name: str) -> Item:
    """Beside the permits' item and not in it: that one is written for every call."""
    return _key(f"UPSTREAM#{upstream_name}", "RATE")


def _minute(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, tz=UTC):%Y-%m-%dT%H:%MZ}"
