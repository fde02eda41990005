"""What a deployment's functions are made of, once per process: environment and settings become a host or a webhook.

Nothing is read or made at import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from shared.aws.blobs import S3Blobs
from shared.aws.clients import HASTY_LEDGER, Clients
from shared.aws.ledger import DynamoLedger
from shared.aws.limiter import DynamoLimiter
from shared.aws.queue import SqsQueue
from shared.aws.runtime import SystemClock, ThreadParallel
from shared.aws.secrets import SecretsManagerSecret
from shared.aws.table import Table
from shared.aws.telemetry import EmfMetrics, JsonLog
from shared.aws.trigger import LambdaTrigger
from shared.aws.upstream import ConverseUpstream, HttpUpstream, Upstreams
from shared.domain.config_rules import (
    NAME,
    URL,
    dotted,
    fault,
    kind_of,
)
from shared.domain.configuration import (
    PROJECT_CONFIG,
    _table,
    _unknown,
    load_settings,
)
from shared.domain.job import Lane
from shared.domain.settings import Settings, UpstreamApi
from shared.errors import ConfigError
from shared.ports import Log, Ports
from shared.webhook.answer import Reporting, Webhook
from shared.webhook.tokens import Tokens

# -- the environment


class Environment(Struct, frozen=True, kw_only=True):
    """What a deployment tells its functions: names and addresses, never a secret."""

    table: str
    """The ledger's name."""
    bucket: str
    """The object store's name."""
    queues: Mapping[str, Mapping[Lane, str]]
    """The queues' URLs, by class and lane."""
    config_path: Path
    pacer: str = ""
    """The pacer function's name; "" but for the webhook."""
    secret: str = ""
    """The secret's name; "" but for the webhook and the function that rotates its secret."""


def read_environment(environ: Mapping[str, str]) -> Environment:
    """The SLUICE_ variables, or ConfigError with every fault in them."""
    faults = [
        fault(key, "nothing", expected)
        for key, expected in (("SLUICE_TABLE", "the ledger table's name"), ("SLUICE_BUCKET", "the bucket's name"))
        if not environ.get(key, "").strip()
    ]
    queues = _read_queues(environ.get("SLUICE_QUEUES", ""), faults)
    if faults:
        raise ConfigError(faults)
    return Environment(
        table=environ["SLUICE_TABLE"].strip(),
        bucket=environ["SLUICE_BUCKET"].strip(),
        queues=queues,
        config_path=Path(environ.get("SLUICE_CONFIG") or PROJECT_CONFIG),
        pacer=environ.get("SLUICE_PACER", ""),
        secret=environ.get("SLUICE_SECRET", ""),
    )


def _read_queues(text: str, faults: list[str]) -> dict[str, dict[Lane, str]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        got = "text that is not JSON" if text else "nothing"
        faults.append(fault("SLUICE_QUEUES", got, "JSON like {class: {lane: url}}"))
        return {}
    queues: dict[str, dict[Lane, str]] = {}
    for name, lanes in _table(("SLUICE_QUEUES",), document, faults).items():
        queues[name] = _read_lanes(("SLUICE_QUEUES", name), lanes, faults)
    return queues


def _read_lanes(at: tuple[str, ...], value: object, faults: list[str]) -> dict[Lane, str]:
    if not isinstance(value, dict):
        faults.append(fault(dotted(*at), kind_of(value), "a table"))
        return {}
    faults.extend(_unknown(at, value, tuple(Lane)))
    found = [URL.fault(dotted(*at, lane), value.get(lane)) for lane in Lane]
    faults.extend(each for each in [NAME.fault(dotted(*at), at[-1]), *found] if each)
    return {lane: str(value.get(lane)) for lane in Lane}


class Host(Struct, frozen=True, kw_only=True):
    """What a handler needs: the settings, the world, the queue's own reading of an event's records, and the clients for
    what is no port: a table of the game's."""

    settings: Settings
    ports: Ports
    queue: SqsQueue
    clients: Clients


def wire(environment: Environment, settings: Settings, *, clients: Clients | None = None) -> Host:
    clients = clients or Clients()
    clock = SystemClock()
    table = Table(clients, environment.table)
    queue = SqsQueue(clients, environment.queues)
    ports = Ports(
        clock=clock,
        parallel=ThreadParallel(),
        log=JsonLog(),
        metrics=EmfMetrics(settings.namespace),
        ledger=DynamoLedger(table),
        queue=queue,
        limiter=DynamoLimiter(table),
        upstream=Upstreams(
            {UpstreamApi.HTTP: HttpUpstream(clock), UpstreamApi.CONVERSE: ConverseUpstream(clients, clock)}
        ),
        blobs=S3Blobs(clients, environment.bucket),
    )
    return Host(settings=settings, ports=ports, queue=queue, clients=clients)


@cache
def host() -> Host:
    """This process's host, made when the first invocation asks for it. A configuration fault is raised every time."""
    environment = read_environment(os.environ)
    return wire(environment, load_settings(environment.config_path))


def open_webhook(environment: Environment, settings: Settings, *, clients: Clients | None = None) -> Webhook:
    clients = clients or Clients(ledger=HASTY_LEDGER)
    ports = wire(environment, settings, clients=clients).ports
    return Webhook(
        config=settings,
        ports=ports,
        tokens=Tokens(ports.clock, SecretsManagerSecret(clients, environment.secret)),
        trigger=LambdaTrigger(clients, environment.pacer),
    )


@cache
def webhook() -> Webhook:
    """This process's webhook, made when the first request asks for it."""
    environment = read_environment(os.environ)
    return open_webhook(environment, load_settings(environment.config_path))


def reporting() -> Reporting:
    """Tells of a webhook that could not be built: its namespace is the environment's, not the settings'."""
    return Reporting(log=JsonLog(), metrics=EmfMetrics())


def rotation() -> tuple[SecretsManagerSecret, Log]:
    return SecretsManagerSecret(Clients(), read_environment(os.environ).secret), JsonLog()
