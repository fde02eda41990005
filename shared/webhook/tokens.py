"""The webhook's secret: who may ask with it, and how it changes.

This process keeps a copy of the stored secret for a minute and compares bearer tokens with it. Secrets Manager changes
the stored one in four steps, each of which it may repeat:

    createSecret  a new value, as AWSPENDING      testSecret    is it one that the webhook would take?
    setSecret     nobody else keeps a copy        finishSecret  AWSPENDING becomes AWSCURRENT

The webhook accepts AWSCURRENT and AWSPREVIOUS, so a caller has one whole rotation to fetch the new value.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from shared.errors import RotationRefused, SecretUnavailable, SecretUnusable
from shared.ports import Clock, Log

MIN_SECRET_BYTES: Final = 16
"""A shorter secret could be guessed: it lets nobody in."""

CACHE_MS: Final = 60_000
"""How long the copy counts: a secret that was taken back opens nothing after it."""

REFRESH_MS: Final = 10_000
"""At most one look at the store in this time for tokens that do not match: a wrong one must not cost a request each."""

FAILED_MS: Final = 1_000
"""How long a look that failed stands for the next ones: a store in trouble must not be asked by every request."""

CURRENT: Final = "AWSCURRENT"
PENDING: Final = "AWSPENDING"


class StoredSecret(Struct, frozen=True, kw_only=True):
    """Both accepted stages as they are stored; None where a stage does not exist."""

    current: bytes | None
    previous: bytes | None

    def __repr__(self) -> str:
        return "StoredSecret()"


class Secrets(Protocol):
    def read(self) -> StoredSecret:
        """The secret's present stages. Raises `SecretUnavailable`."""
        ...


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


def usable_secret(stored: bytes | None) -> bytes | None:
    """The secret as a caller can present it, or None. Editors and `echo` end it with a newline that nobody sends."""
    secret = (stored or b"").rstrip(b"\r\n")
    return secret if len(secret) >= MIN_SECRET_BYTES and secret.isascii() else None


def is_one_of(token: bytes, secrets: Iterable[bytes]) -> bool:
    """Compare with every secret, as bytes, in a time that depends on neither's content (facts F41, F42).

    Digests are compared, since `compare_digest` returns early where the lengths differ. Without a secret nobody is let
    in: an empty one equals an empty token.
    """
    given = hashlib.sha256(token).digest()
    matches = False
    for secret in secrets:
        matches |= hmac.compare_digest(given, hashlib.sha256(secret).digest())
    return matches


class Tokens:
    """Not for use by two threads at once: a Lambda process serves one request at a time."""

    def __init__(self, clock: Clock, secrets: Secrets) -> None:
        self._clock = clock
        self._store = secrets
        self._accepted: tuple[bytes, ...] = ()
        self._read_ms: int | None = None
        self._tried_ms: int | None = None
        self._failed_ms: int | None = None

    def accepts(self, token: bytes) -> bool:
        """Whether the token is the current or the previous secret.

        Raises `SecretUnavailable` when there is no copy young enough and the store does not answer, and
        `SecretUnusable` when what is stored must not let anybody in.
        """
        now_ms = self._clock.now_ms()
        if not _within(self._read_ms, CACHE_MS, now_ms):
            self._read(now_ms)
        if not self._accepted and not _within(self._tried_ms, REFRESH_MS, now_ms):
            self._read(now_ms)
        if not self._accepted:
            raise SecretUnusable
        if is_one_of(token, self._accepted):
            return True
        if _within(self._tried_ms, REFRESH_MS, now_ms):
            return False
        try:
            self._read(now_ms)  # it may have been rotated meanwhile
        except SecretUnavailable:
            return False  # the copy that is there goes on counting
        return is_one_of(token, self._accepted)

    def _read(self, now_ms: int) -> None:
        if _within(self._failed_ms, FAILED_MS, now_ms):
            raise SecretUnavailable("asked a moment ago")
        self._tried_ms = now_ms
        self._failed_ms = now_ms  # until it has answered
        stored = self._store.read()
        self._failed_ms = None
        current, previous = usable_secret(stored.current), usable_secret(stored.previous)
        # A previous one alone opens nothing: without a current secret somebody has broken it, and should hear of it.
        self._accepted = () if current is None else (current, *([] if previous is None else [previous]))
        self._read_ms = now_ms


def _within(since_ms: int | None, span_ms: int, now_ms: int) -> bool:
    """False for a clock that went backwards, too."""
    return since_ms is not None and 0 <= now_ms - since_ms < span_ms


def rotate(versions: SecretVersions, log: Log, *, step: str, version: str, new_value: Callable[[], str]) -> None:
    """One step of a rotation. Raises `RotationRefused` where it does not fit what is stored: what is current stays."""
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
            _pending(versions, version)
        case "finishSecret":
            pending = _pending(versions, version)
            current = next((other for other, names in stages.items() if CURRENT in names), None)
            if current is not None and pending == usable_secret(versions.value(current, CURRENT)):
                raise RotationRefused("unchanged")
            versions.make_current(version, instead_of=current)
        case _:
            raise RotationRefused("unknown_step")
    log.event("secret_rotation", step=step)


def _pending(versions: SecretVersions, version: str) -> bytes:
    pending = usable_secret(versions.value(version, PENDING))
    if pending is None:
        raise RotationRefused("unusable")
    return pending
