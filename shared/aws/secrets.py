"""The webhook's secret in Secrets Manager: read by the webhook, moved on by its rotation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from shared.aws.clients import Clients, answered, code_of
from shared.errors import SecretUnavailable
from shared.webhook.tokens import CURRENT, StoredSecret

_PREVIOUS = "AWSPREVIOUS"
"""The stage of the value before the current one: tokens of it are accepted for a while."""

_NO_SUCH_STAGE = "ResourceNotFoundException"
"""The secret has no value at the stage that was asked for."""


class SecretsManagerSecret:
    """`name` is the secret's name or ARN."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self._name = name

    def read(self) -> StoredSecret:
        """Two reads. Between them a rotation may finish: then both say the same, until the next look."""
        return StoredSecret(current=self._value(VersionStage=CURRENT), previous=self._value(VersionStage=_PREVIOUS))

    def stages(self) -> Mapping[str, tuple[str, ...]]:
        with _answered():
            secret = self._clients.secrets.describe_secret(SecretId=self._name)
        return {version: tuple(stages) for version, stages in secret.get("VersionIdsToStages", {}).items()}

    def value(self, version: str, stage: str) -> bytes | None:
        return self._value(VersionId=version, VersionStage=stage)

    def put_pending(self, version: str, value: str) -> None:
        with _answered():
            self._clients.secrets.put_secret_value(
                SecretId=self._name, ClientRequestToken=version, SecretString=value, VersionStages=["AWSPENDING"]
            )

    def make_current(self, version: str, *, instead_of: str | None) -> None:
        moved = {} if instead_of is None else {"RemoveFromVersionId": instead_of}
        with _answered():
            self._clients.secrets.update_secret_version_stage(
                SecretId=self._name, VersionStage=CURRENT, MoveToVersionId=version, **moved
            )

    def _value(self, **which: str) -> bytes | None:
        with _answered():
            try:
                answer: dict[str, Any] = self._clients.secrets.get_secret_value(SecretId=self._name, **which)
            except ClientError as error:
                if code_of(error) == _NO_SUCH_STAGE:
                    return None
                raise
        text = answer.get("SecretString")
        return answer.get("SecretBinary") if text is None else text.encode("utf-8")


@contextmanager
def _answered() -> Iterator[None]:
    """Whatever keeps the secret from us is one thing to a caller: permissions and a lost key too."""
    try:
        with answered(SecretUnavailable):
            yield
    except ClientError as error:
        raise SecretUnavailable(code_of(error)) from error
