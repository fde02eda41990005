"""Time and threads of a real process, and what a handler may raise. The only place that reads the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, Final, TypeVar

from botocore.exceptions import ClientError

from shared.aws.clients import code_of
from shared.errors import SluiceError, Unforeseen

Item = TypeVar("Item")
Result = TypeVar("Result")
Answer = TypeVar("Answer")

DEFAULT_THREADS: Final = 32
"""Half of a client's connection pool: two fan-outs at a time find a free connection each."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


class ThreadParallel:
    """A pool per call: one inside another cannot wait for threads that the outer one holds."""

    def __init__(self, threads: int = DEFAULT_THREADS) -> None:
        self._threads = threads

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if not items:
            return []
        with ThreadPoolExecutor(max_workers=min(self._threads, len(items))) as pool:
            futures = [pool.submit(work, item) for item in items]
        return [future.result() for future in futures]  # the pool has waited for all of them


def discreet(handler: Callable[[Any, Any], Answer]) -> Callable[[Any, Any], Answer]:
    """A handler that raises nothing but our own errors, whose texts hold no input, and without what they came from.

    Lambda prints an error that leaves a handler, and hands its text to whoever invoked it or to the queue of lost
    events. AWS's own errors quote requests, and a library's quote whatever they stumbled over (I12): so any other error
    is told by its type, and AWS's by its code, an exit of a job's code too. The trace says where it happened.
    """

    @wraps(handler)
    def guarded(event: Any, context: Any) -> Answer:
        try:
            return handler(event, context)
        except SluiceError as error:
            raise error from None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the last one to see it before Lambda does
            raise Unforeseen(_kind_of(error)).with_traceback(error.__traceback__) from None

    return guarded


def _kind_of(error: BaseException) -> str:
    code = f" {code_of(error)}" if isinstance(error, ClientError) else ""
    return f"{type(error).__name__}{code}"
