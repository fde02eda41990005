"""botocore clients, made on first use, and the one place where botocore's errors become ours.

An SDK call that outlives a worker's deadline is work done after the lease has ended (fact F26). So timeouts and
attempts are stated, and the worst case of every client stays below the 10 s that a worker keeps as its margin.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import botocore.session
from botocore import exceptions as sdk
from botocore.config import Config
from botocore.exceptions import ClientError
from msgspec import Struct

from shared.errors import Retryable

MakeClient: TypeAlias = Callable[[str, Config], Any]

POOL_CONNECTIONS: Final = 64
"""Claims run in parallel; a pool smaller than the threads would open and drop a connection per call."""


class Patience(Struct, frozen=True, kw_only=True):
    """How long one client may take, all attempts included."""

    connect_s: float
    read_s: float
    attempts: int

    @property
    def worst_s(self) -> float:
        """Every attempt times out; botocore's standard mode waits at most 1, 2, 4, ... s between them."""
        return self.attempts * (self.connect_s + self.read_s) + float(2 ** (self.attempts - 1) - 1)

    def config(self) -> Config:
        return Config(
            connect_timeout=self.connect_s,
            read_timeout=self.read_s,
            retries={"mode": "standard", "total_max_attempts": self.attempts},
            max_pool_connections=POOL_CONNECTIONS,
        )


LEDGER: Final = Patience(connect_s=1.0, read_s=2.0, attempts=2)
"""Below the worker's margin, with the pauses between attempts at a conflict."""
ONCE: Final = Patience(connect_s=1.0, read_s=2.0, attempts=1)
"""For additions that must not be made twice: a lost answer is not tried again."""
QUEUE: Final = Patience(connect_s=1.0, read_s=2.0, attempts=2)
OBJECTS: Final = Patience(connect_s=1.0, read_s=3.0, attempts=2)
# For the webhook, whose gateway answers after 10 s in its place. Two reads of the secret, one of control, the admission
# and the pacer's invocation end before the function does, even if each takes as long as it may.
SECRETS: Final = Patience(connect_s=0.5, read_s=1.0, attempts=1)
HASTY_LEDGER: Final = Patience(connect_s=0.5, read_s=2.0, attempts=2)
TRIGGER: Final = Patience(connect_s=0.5, read_s=1.5, attempts=1)
PERSON: Final = Patience(connect_s=2.0, read_s=10.0, attempts=3)
"""For what only a person's command asks: no lease waits for it."""
WHO: Final = Patience(connect_s=1.0, read_s=2.0, attempts=1)
"""For the caller's own name, which a command can do without."""

_QUOTING: Final = ("boto3", "botocore", "s3transfer", "urllib3", "PIL")
"""They print whole requests and answers, headers that they cannot parse, the tags of a picture."""


def quiet_libraries() -> None:
    """Payloads pass through these, and a Lambda's log level reaches every logger: nothing below ERROR (I12)."""
    for name in _QUOTING:
        logging.getLogger(name).setLevel(logging.ERROR)


class Clients:
    """One process's clients. Importing this module makes none; each is made once, by the first thread that needs it."""

    def __init__(self, make: MakeClient | None = None, *, ledger: Patience = LEDGER) -> None:
        quiet_libraries()
        self._make = make
        self._ledger = ledger
        self._made: dict[tuple[str, Patience], Any] = {}
        self._lock = threading.Lock()

    @property
    def dynamodb(self) -> Any:
        return self._client("dynamodb", self._ledger)

    @property
    def dynamodb_once(self) -> Any:
        return self._client("dynamodb", ONCE)

    @property
    def sqs(self) -> Any:
        return self._client("sqs", QUEUE)

    @property
    def s3(self) -> Any:
        return self._client("s3", OBJECTS)

    @property
    def secrets(self) -> Any:
        return self._client("secretsmanager", SECRETS)

    def awaited_functions(self, *, timeout_s: float) -> Any:
        """For an operator who waits for what a function says. One attempt: another would be another invocation."""
        return self._client("lambda", Patience(connect_s=1.0, read_s=timeout_s, attempts=1))

    @property
    def functions(self) -> Any:
        return self._client("lambda", TRIGGER)

    def for_person(self, service: str) -> Any:
        return self._client(service, PERSON)

    @property
    def identity(self) -> Any:
        return self._client("sts", WHO)

    def inference(self, *, timeout_s: int) -> Any:
        """A client for one attempt: another one would be a call without a permit (I7)."""
        return self._client("bedrock-runtime", Patience(connect_s=1.0, read_s=float(timeout_s), attempts=1))

    def _client(self, service: str, patience: Patience) -> Any:
        key = (service, patience)
        with self._lock:  # a session is not safe to make clients from in two threads at once
            if key not in self._made:
                if self._make is None:
                    self._make = _session_clients()
                self._made[key] = self._make(service, patience.config())
            return self._made[key]


def _session_clients() -> MakeClient:
    # botocore and not boto3, whose import is mostly its transfer manager: a cold start would pay for what nobody calls.
    session = botocore.session.get_session()

    def make(service: str, config: Config) -> Any:
        return session.create_client(service, config=config)

    return make


# -- errors

_UNAVAILABLE_CODES: Final = frozenset(
    {
        *("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "OperationAborted"),
        *("KMSThrottlingException", "KmsThrottled", "ThrottledException", "Throttling", "ThrottlingError"),
        *("ThrottlingException", "RequestThrottled", "SlowDown", "TooManyRequestsException"),
        *("ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException", "RequestLimitExceeded"),
        *("LimitExceededException", "OverLimit", "RequestTimeout", "RequestTimeoutException"),
    }
)
"""What the services call "not now": throttled, overloaded, or broken for a moment."""

_CONFLICT_CODES: Final = frozenset(
    {"TransactionConflict", "TransactionConflictException", "TransactionInProgressException"}
)
"""Another's transaction holds the item."""

_SERVER_ERROR: Final = 500


def code_of(error: ClientError) -> str:
    """The code without the service that some of SQS's are prefixed with."""
    return str(error.response.get("Error", {}).get("Code", "")).rpartition(".")[2]


def status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_passing(code: str) -> bool:
    """A per-item code that a later attempt may not meet: throttled, overloaded, or in another's transaction."""
    return code in _UNAVAILABLE_CODES or code in _CONFLICT_CODES


def cancellation_codes(error: ClientError) -> list[str]:
    """One code per item of a cancelled transaction, "None" for the items that were in order (fact F20)."""
    return [str(reason.get("Code", "None")) for reason in error.response.get("CancellationReasons", [])]


def is_conflict(error: ClientError) -> bool:
    """Another transaction held an item: nothing was written, and the SDK does not try again by itself."""
    if code_of(error) == "TransactionCanceledException":
        codes = set(cancellation_codes(error)) - {"None"}
        return bool(codes) and all(map(is_passing, codes))
    return code_of(error) in _CONFLICT_CODES


@contextmanager
def answered(unavailable: type[Retryable]) -> Iterator[None]:
    """Turn "the service did not do its part" into `unavailable`. Refused conditions and bugs pass through unchanged."""
    try:
        yield
    except ClientError as error:
        if code_of(error) in _UNAVAILABLE_CODES or status_of(error) >= _SERVER_ERROR:
            raise unavailable(code_of(error)) from error
        raise
    except (sdk.ConnectionError, sdk.HTTPClientError, sdk.IncompleteReadError) as error:
        raise unavailable(type(error).__name__) from error
