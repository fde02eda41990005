"""A table of sessions in memory, in which every session can change just before its delete, and every delete is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from functions.worker.kinds.session_sweep import Page
from shared.aws.keys import Item


def session_key(session_id: str) -> Item:
    return {"session_id": {"S": session_id}}


@dataclass(slots=True)
class MemorySessions:
    """Session id -> `expires_s`, in pages of `page_rows` by hash order, as a scan gives them.

    `before_delete` is called between the read of a session and its delete: the moment at which a renewal counts.
    `conditional` False is a table without the condition, to see that the checks below are awake.
    """

    expires_s: dict[str, int]
    page_rows: int = 10
    before_delete: Callable[[str], None] = lambda session_id: None
    conditional: bool = True
    pages: int = 0
    deleted: list[tuple[str, int]] = field(default_factory=list)
    """Every session that was deleted, with its `expires_s` at that moment."""

    def page(self, *, expired_before_s: int, resume: Item | None) -> Page:
        self.pages += 1
        after = "" if resume is None else _hash(resume["session_id"]["S"])
        order = sorted(self.expires_s, key=_hash)
        rest = [session_id for session_id in order if _hash(session_id) > after]
        rows = rest[: self.page_rows]
        expired = [session_key(name) for name in rows if self.expires_s[name] < expired_before_s]
        return Page(expired=expired, resume=session_key(rows[-1]) if len(rest) >= self.page_rows else None)

    def delete(self, keys: Sequence[Item], *, expired_before_s: int) -> int:
        return sum(self._delete(key["session_id"]["S"], expired_before_s) for key in keys)

    def _delete(self, session_id: str, expired_before_s: int) -> bool:
        self.before_delete(session_id)
        expires_s = self.expires_s.get(session_id)
        if expires_s is None or (self.conditional and expires_s >= expired_before_s):
            return False
        self.deleted.append((session_id, expires_s))
        del self.expires_s[session_id]
        return True

    def live_deleted(self, expired_before_s: int) -> list[str]:
        return [session_id for session_id, expires_s in self.deleted if expires_s >= expired_before_s]

    def expired_left(self, expired_before_s: int) -> list[str]:
        return [session_id for session_id, expires_s in self.expires_s.items() if expires_s < expired_before_s]


def _hash(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()
