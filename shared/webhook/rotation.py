"""The four steps in which Secrets Manager changes the webhook's secret, each of which it may repeat.

    createSecret  a new value, as AWSPENDING      testSecret    is it one that the webhook would take?
    setSecret     nobody else keeps a copy        finishSecret  AWSPENDING becomes AWSCURRENT

The webhook accepts AWSCURRENT and AWSPREVIOUS, so a caller has one whole rotation to fetch the new value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from shared.errors import RotationRefused
from shared.ports import Log
from shared.webhook.request import usable_secret

CURRENT: Final = "AWSCURRENT"

PENDING: Final = "AWSPENDING"


class SecretVersions(Protocol):
    """The stored versions of the one secret. Raises `SecretUnavailable`."""

    def stages(self) -> Mapping[str, tuple[str, ...]]:
        """Each version's id with its stages."""
        ...

    def value(self, version: str, stage: str) -> bytes | None:
        """None where the version does not have the stage, or no value yet."""
        ...

    def put_pending(self, version: str, value: str) -> None: ...

    def make_current(self, version: str, *, instead_of: str | None) -> None:
        """Moves AWSCURRENT; what it leaves becomes AWSPREVIOUS by itself."""
        ...


def rotate(versions: SecretVersions, log: Log, *, step: str, version: str, new_value: Callable[[], str]) -> None:
    """One step. Raises `RotationRefused` where it does not fit what is stored: what is current stays so."""
    stages = versions.stages()
    if version not in stages:
        raise RotationRefused("unknown_version")
    if CURRENT in stages[version]:
        return  # a repeat of a step that has succeeded
    if PENDING not in stages[version] and step != "createSecret":
        raise RotationRefused("not_pending")
    match step:
        case "createSecret":
            if versions.value(version, PENDING) is None:
                versions.put_pending(version, new_value())
        case "setSecret":
            pass
        case "testSecret":  # alone, too, when a schedule is made: then the value under test is the current one
            if usable_secret(versions.value(version, PENDING)) is None:
                raise RotationRefused("unusable")
        case "finishSecret":
            _check_new(versions, version, stages)
            versions.make_current(version, instead_of=_current(stages))
        case _:
            raise RotationRefused("unknown_step")
    log.event("secret_rotation", step=step)


def _check_new(versions: SecretVersions, version: str, stages: Mapping[str, tuple[str, ...]]) -> None:
    pending = usable_secret(versions.value(version, PENDING))
    current = _current(stages)
    if pending is None:
        raise RotationRefused("unusable")
    if current is not None and pending == usable_secret(versions.value(current, CURRENT)):
        raise RotationRefused("unchanged")


def _current(stages: Mapping[str, tuple[str, ...]]) -> str | None:
    return next((version for version, names in stages.items() if CURRENT in names), None)
