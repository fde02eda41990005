"""What a deployment's functions are made of, once per process: environment and settings become a host or a webhook.

Nothing is read or made at import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

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
from shared.domain.configuration import PROJECT_CONFIG, Walker, load_settings
from shared.domain.job import Lane
from shared.domain.keys import URL, Key, Section
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


class _LaneUrls(Struct, frozen=True, kw_only=True):
    """The addresses of one class's queues, by lane."""

    live: str
    recovery: str


_QUEUES: Final = Section(target=_LaneUrls, keys={lane: Key(URL) for lane in Lane}, named=True)
"""What SLUICE_QUEUES holds for each class."""


def read_environment(environ: Mapping[str, str]) -> Environment:
    """The SLUICE_ variables, or ConfigError with every fault in them."""
    walker = Walker()
    for key, expected in (("SLUICE_TABLE", "the ledger table's name"), ("SLUICE_BUCKET", "the bucket's name")):
        if not environ.get(key, "").strip():
            walker.fault(key, "nothing", expected)
    queues = _read_queues(environ.get("SLUICE_QUEUES", ""), walker)
    if walker.faults:
        raise ConfigError(walker.faults)
    return Environment(
        table=environ["SLUICE_TABLE"].strip(),
        bucket=environ["SLUICE_BUCKET"].strip(),
        queues=queues,
        config_path=Path(environ.get("SLUICE_CONFIG") or PROJECT_CONFIG),
        pacer=environ.get("SLUICE_PACER", ""),
        secret=environ.get("SLUICE_SECRET", ""),
    )


def _read_queues(text: str, walker: Walker) -> dict[str, dict[Lane, str]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        got = "text that is not JSON" if text else "nothing"
        walker.fault("SLUICE_QUEUES", got, "JSON like {class: {lane: url}}")
        return {}
    queues = walker.named("SLUICE_QUEUES", document, _QUEUES)
    return {name: {Lane(lane): url for lane, url in urls.items()} for name, urls in queues.items()}


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
