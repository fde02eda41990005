"""Who may ask: the bearer token against the stored secret, of which this process keeps a copy for a minute."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

from shared.errors import SecretUnavailable, SecretUnusable
from shared.ports import Clock
from shared.webhook.request import is_one_of, usable_secret

CACHE_MS: Final = 60_000

REFRESH_MS: Final = 10_000
"""At most one look at the store in this time for tokens that do not match: a wrong one must not cost a request each."""

FAILED_MS: Final = 1_000
"""How long a look that failed stands for the next ones: a store in trouble must not be asked by every request."""


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
        `SecretUnusable` when what is stored must not open a door.
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
        return self._rotated_meanwhile(now_ms) and is_one_of(token, self._accepted)

    def _rotated_meanwhile(self, now_ms: int) -> bool:
        """Look again, once in a while. The copy that is there goes on counting where the store does not answer."""
        if _within(self._tried_ms, REFRESH_MS, now_ms):
            return False
        try:
            self._read(now_ms)
        except SecretUnavailable:
            return False
        return True

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
