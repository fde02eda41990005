"""Environment and settings -> `Ports`, once per process. Nothing is read or made at import."""

from __future__ import annotations

import os
from functools import cache

from shared.aws.bedrock import ConverseUpstream
from shared.aws.blobs import S3Blobs
from shared.aws.clients import Clients
from shared.aws.ledger import DynamoLedger
from shared.aws.limiter import DynamoLimiter
from shared.aws.log import JsonLog
from shared.aws.metrics import EmfMetrics
from shared.aws.queue import SqsQueue
from shared.aws.runtime import SystemClock, ThreadParallel
from shared.aws.table import Table
from shared.aws.upstream import HttpUpstream, Upstreams
from shared.config import Environment, load_settings, read_environment
from shared.core.settings import Settings, UpstreamApi
from shared.core.values import frozen
from shared.ports import Ports


@frozen
class Host:
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
