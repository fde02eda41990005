"""Where a payload lives: a small one in its row, a large one in the object store under a key that names its content."""

from __future__ import annotations

import hashlib
from typing import Final

INLINE_BYTES: Final = 4096
"""The largest payload, as UTF-8, that a row holds itself: rows are read and written whole at every move."""

MAX_PAYLOAD_BYTES: Final = 1_048_576
"""The hard limit. What is larger belongs into the object store by its producer, with its key as the payload."""


def payload_key(body: bytes) -> str:
    """By content, so that the same job submitted again means the same object, and no two payloads share one."""
    return f"payloads/{hashlib.sha256(body).hexdigest()}"
