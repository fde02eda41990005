"""How a command reaches a deployment: the configuration file, the names of its resources, and ports made of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ops.transfer.copying import LedgerCopy
from shared.aws.clients import Clients
from shared.aws.copy import DynamoCopy
from shared.aws.operator import CloudWatchHistory, LambdaMappings, caller_arn
from shared.aws.table import Table
from shared.aws.trigger import LambdaPacer
from shared.aws.wiring import Environment, read_environment, wire
from shared.domain.configuration import load_settings
from shared.domain.settings import Settings
from shared.errors import ConfigError
from shared.operate.ports import Mappings, MetricHistory, Pacer
from shared.ports import Ports

OUTPUTS: Final[Mapping[str, str]] = {
    "TableName": "SLUICE_TABLE",
    "BucketName": "SLUICE_BUCKET",
    "QueueUrls": "SLUICE_QUEUES",
}
"""A stack's output -> the variable under which the functions know the same thing."""

_FILE: Final = "the outputs file of `cdk deploy --outputs-file`"


class Access(Protocol):
    """What commands use. Everything is read when a command asks for it: `--help` needs no deployment."""

    def settings(self) -> Settings: ...

    def ports(self) -> Ports: ...

    def deployed_classes(self) -> frozenset[str]:
        """The job classes of the deployment as it is now, which may not be those of the configuration."""
        ...

    def caller_arn(self) -> str | None:
        """The caller's AWS identity; None where there is none, as with a local emulator."""
        ...

    def mappings(self) -> Mappings: ...

    def history(self) -> MetricHistory: ...

    def ledger_copy(self) -> LedgerCopy:
        """The deployment's table item by item, to copy it."""
        ...

    def pacer(self) -> Pacer:
        """The deployment's pacer, for ticks that somebody waits for."""
        ...

    def beside(self, outputs: Path) -> Access:
        """Another deployment of the same configuration."""
        ...


class NoLog:
    """A command says itself what it did; the log lines of its use cases would stand in the middle of its output."""

    def event(self, name: str, **fields: int | float | str | bool | None) -> None:
        return None


class AwsAccess(Struct, frozen=True, kw_only=True):
    """Resources by name from a CDK outputs file, or else from the SLUICE_ variables. Raises `ConfigError`."""

    config: Path | None
    outputs: Path | None
    variables: Mapping[str, str]

    def settings(self) -> Settings:
        return load_settings(self.config or self._named_config())

    def ports(self) -> Ports:
        return replace(wire(self._environment(), self.settings()).ports, log=NoLog())

    def deployed_classes(self) -> frozenset[str]:
        return frozenset(self._environment().queues)

    def caller_arn(self) -> str | None:
        return caller_arn(Clients())

    def mappings(self) -> Mappings:
        return LambdaMappings(Clients(), self._environment().queues)

    def history(self) -> MetricHistory:
        return CloudWatchHistory(Clients(), self.settings().namespace)

    def ledger_copy(self) -> LedgerCopy:
        return DynamoCopy(Table(Clients(), self._environment().table))

    def pacer(self) -> Pacer:
        name = self._environment().pacer
        if not name:
            raise ConfigError(["PacerName: got nothing, expected it in the outputs file, or SLUICE_PACER"])
        return LambdaPacer(Clients(), name, timeout_s=self.settings().pacer_timeout_s)

    def beside(self, outputs: Path) -> Access:
        return replace(self, outputs=outputs)

    def _named_config(self) -> Path | None:
        """As every TOML-configured tool: the variable, the file in this directory, the project's own."""
        named = self.variables.get("SLUICE_CONFIG")
        here = Path("sluice.toml")
        return Path(named) if named else (here if here.is_file() else None)

    def _environment(self) -> Environment:
        if self.outputs is not None:
            return read_environment(read_outputs(self.outputs))
        missing = [name for name in OUTPUTS.values() if not self.variables.get(name, "").strip()]
        if len(missing) == len(OUTPUTS):
            expected = "a deployment: --outputs FILE of `cdk deploy --outputs-file FILE`, or the SLUICE_ variables"
            raise ConfigError([f"--outputs: got nothing, expected {expected}"])
        return read_environment(self.variables)


def read_outputs(path: Path) -> dict[str, str]:
    """The SLUICE_ variables that a CDK outputs file stands for: {stack: {output: value}}, one stack of it Sluice's."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError([f"{path.name}: got {(error.strerror or 'no answer').lower()}, expected {_FILE}"]) from None
    except (ValueError, RecursionError):
        raise ConfigError([f"{path.name}: got text that is not JSON, expected {_FILE}"]) from None
    tables = (document, *document.values()) if isinstance(document, dict) else ()
    stacks = [table for table in tables if isinstance(table, dict) and "TableName" in table]
    if len(stacks) != 1:
        raise ConfigError([f"{path.name}: got {len(stacks)} stacks with a TableName, expected {_FILE} with one"])
    faults = [
        f"{path.name}: {name}: got nothing, expected text"
        for name in OUTPUTS
        if not isinstance(stacks[0].get(name), str)
    ]
    if faults:
        raise ConfigError(faults)
    pacer = stacks[0].get("PacerName")
    variables = {variable: stacks[0][name] for name, variable in OUTPUTS.items()}
    return variables | ({"SLUICE_PACER": pacer} if isinstance(pacer, str) else {})
