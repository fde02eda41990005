"""Environment and settings -> the webhook's `Door`, and the secret that the rotation moves on; once per process."""

from __future__ import annotations

import os
from functools import cache

from shared.aws.clients import HASTY_LEDGER, Clients
from shared.aws.log import JsonLog
from shared.aws.metrics import EmfMetrics
from shared.aws.secrets import SecretsManagerSecret
from shared.aws.trigger import LambdaTrigger
from shared.aws.wiring import wire
from shared.config import Environment, load_settings, read_environment
from shared.core.settings import Settings
from shared.ports import Log
from shared.usecases.admit import Door, Witness
from shared.usecases.tokens import Tokens


def open_door(environment: Environment, settings: Settings, *, clients: Clients | None = None) -> Door:
    clients = clients or Clients(ledger=HASTY_LEDGER)
    ports = wire(environment, settings, clients=clients).ports
    return Door(
        settings=settings,
        ports=ports,
        tokens=Tokens(ports.clock, SecretsManagerSecret(clients, environment.secret)),
        trigger=LambdaTrigger(clients, environment.pacer),
    )


@cache
def door() -> Door:
    """This process's door, made when the first request asks for it."""
    environment = read_environment(os.environ)
    return open_door(environment, load_settings(environment.config_path))


def witness() -> Witness:
    """Who tells of a door that could not be built: its namespace is the environment's, not the settings'."""
    return Witness(log=JsonLog(), metrics=EmfMetrics())


def rotation() -> tuple[SecretsManagerSecret, Log]:
    return SecretsManagerSecret(Clients(), read_environment(os.environ).secret), JsonLog()
