"""The object store in memory."""

from __future__ import annotations

from shared.errors import ObjectMissing


class MemoryBlobs:
    """`objects` is open to tests, which put there what a game would have uploaded."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def read(self, key: str, *, start: int, length: int) -> bytes:
        if key not in self.objects:
            raise ObjectMissing()
        return self.objects[key][start : start + length]

    def put_once(self, key: str, body: bytes, *, content_type: str) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = body
        return True
