"""Ctrl-C during a submission: what is on its way is finished and counted, then it stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """While `shielded`, the first ctrl-C only asks to stop; at any other time, and the second one, it raises.

    Reading a pipe is not shielded: it may wait for ever for a next line.
    """

    def __init__(self) -> None:
        self.asked = False
        self._shielded = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may have handlers, and gets the interrupts
            return
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self.asked:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked or not self._shielded:
            raise KeyboardInterrupt
        self.asked = True
