"""Sweep a table of sessions: delete the expired ones page by page, and never one that was renewed meanwhile.

A session is an item with `expires_s`, a number of Unix seconds. Expired means: before the job's due time, or before
`expired_before_s` where the payload names an earlier one. It is never compared with the wall clock, so that a chunk
that runs again after a crash judges as it did the first time, and no payload makes a live session an expired one.

The table is the class's option `sessions_table` and not the payload's business: who submits a job must not choose what
is deleted. `sessions_key` names its key attributes, "session_id" where it is left out, as in "player_id,session_id".

One page is one chunk, and its last key the cursor. Nothing but counters is kept of a page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Protocol

from botocore.exceptions import ClientError
from msgspec import Struct

from shared.aws.clients import Clients, answered, code_of, is_conflict
from shared.aws.keys import Item
from shared.aws.runtime import ThreadParallel
from shared.aws.table import scan_page
from shared.domain.job import Job
from shared.errors import BadPayload, ConfigError, StorageUnavailable
from shared.kind import Chunk, ChunkContext, payload_of
from shared.ports import Parallel
from shared.worker.message import MAX_CURSOR_BYTES

calls_per_chunk: Final = 0

PAGE_ROWS: Final = 250
"""Rows read per chunk, expired or not: what a crash may cost, and a fraction of a second if all are expired."""

DELETE_THREADS: Final = 8
LONGEST_KEY_BYTES: Final = 32 * 1024
"""Above any key as JSON: 2,048 + 1,024 bytes at most, of which a control character becomes six, and two names."""

DELETED: Final = "sessions_deleted"
SPARED: Final = "sessions_spared"
"""Expired when they were read, and not any more when they were to be deleted: renewed, or deleted by someone else."""

_STORED: Final = "@"
"""Begins a cursor that is the name of an object. No key does: its JSON begins with a brace."""


class Page(Struct, frozen=True, kw_only=True):
    """The keys of the expired sessions of one page, and where the next page starts, or None after the last."""

    expired: Sequence[Item]
    resume: Item | None


class Sessions(Protocol):
    """The table of sessions, as the sweep needs it. Both methods raise `StorageUnavailable`."""

    def page(self, *, expired_before_s: int, resume: Item | None) -> Page:
        """The next page after the key `resume`. What it says of a session may be old: it nominates."""
        ...

    def delete(self, keys: Sequence[Item], *, expired_before_s: int) -> int:
        """Delete each session only if it is expired still, and return how many that were. Each one is atomic."""
        ...


def process_chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
    options = context.options
    if "sessions_table" not in options:
        raise ConfigError(["options.sessions_table: got nothing, expected the name of a DynamoDB table"])
    sessions = _sessions(options["sessions_table"], options.get("sessions_key", "session_id"))
    return sweep_page(sessions, job, cursor, context)


def sweep_page(sessions: Sessions, job: Job, cursor: str, context: ChunkContext) -> Chunk:
    before_s = expired_before_s(job)
    page = sessions.page(expired_before_s=before_s, resume=_read_cursor(cursor, context) if cursor else None)
    deleted = sessions.delete(page.expired, expired_before_s=before_s)
    context.count(DELETED, deleted)
    context.count(SPARED, len(page.expired) - deleted)
    return Chunk(next_cursor=None if page.resume is None else _write_cursor(page.resume, context))


def expired_before_s(job: Job) -> int:
    """The moment the sweep judges by, fixed with the job. It has passed, because no job starts before it is due."""
    due_s = job.due_ms // 1000
    asked = payload_of(job).get("expired_before_s", due_s)
    if type(asked) is not int or not 0 <= asked <= due_s:
        raise BadPayload("expired_before_s: expected Unix seconds, not later than the job's due time")
    return asked


# -- the cursor


def _write_cursor(key: Item, context: ChunkContext) -> str:
    """The key itself, or where it is too long for a cursor the name of an object that holds it, which it determines."""
    text = _key_text(key)
    body = text.encode()
    if len(body) <= MAX_CURSOR_BYTES:
        return text
    name = f"cursors/{hashlib.sha256(body).hexdigest()}.json"
    context.put_blob_once(name, body, content_type="application/json")
    return _STORED + name


def _read_cursor(cursor: str, context: ChunkContext) -> Item:
    if not cursor.startswith(_STORED):
        return _key_of(cursor)
    body = context.read_blob(cursor.removeprefix(_STORED), start=0, length=LONGEST_KEY_BYTES)
    return _key_of(body.decode())


def _key_text(key: Item) -> str:
    plain = {
        name: {tag: base64.b64encode(value).decode() if tag == "B" else value for tag, value in attribute.items()}
        for name, attribute in key.items()
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _key_of(text: str) -> Item:
    return {
        name: {tag: base64.b64decode(value) if tag == "B" else value for tag, value in attribute.items()}
        for name, attribute in json.loads(text).items()
    }


# -- DynamoDB


@cache
def _sessions(table: str, key: str) -> Sessions:
    """One per process: a client costs more than a page."""
    return DynamoSessions(Clients(), table, key.split(","), parallel=ThreadParallel(DELETE_THREADS))


class DynamoSessions:
    """`Sessions` in a table of someone else's. Needs dynamodb:Scan and dynamodb:DeleteItem on it, and no index."""

    def __init__(
        self, clients: Clients, table: str, key: Sequence[str], *, parallel: Parallel, page_rows: int = PAGE_ROWS
    ) -> None:
        self._clients = clients
        self._table = table
        self._key = [name.strip() for name in key]
        self._parallel = parallel
        self._page_rows = page_rows

    def page(self, *, expired_before_s: int, resume: Item | None) -> Page:
        """An eventually consistent read, at half the price: it nominates, and the condition of each delete decides."""
        names = {f"#key{number}": name for number, name in enumerate(self._key)}
        items, resume = scan_page(
            self._clients.dynamodb,
            resume=resume,
            TableName=self._table,
            Limit=self._page_rows,
            FilterExpression="#expires < :before",
            ProjectionExpression=", ".join(names),
            ExpressionAttributeNames={**names, "#expires": "expires_s"},
            ExpressionAttributeValues={":before": {"N": str(expired_before_s)}},
        )
        return Page(expired=items, resume=resume)

    def delete(self, keys: Sequence[Item], *, expired_before_s: int) -> int:
        # read as expired ── (renewed, or deleted and begun anew) ── delete ✗. A session without `expires_s`, or with
        # one that is no number, fails the comparison, so it is never deleted.
        request = {
            "TableName": self._table,
            "ConditionExpression": "#expires < :before",
            "ExpressionAttributeNames": {"#expires": "expires_s"},
            "ExpressionAttributeValues": {":before": {"N": str(expired_before_s)}},
        }
        return sum(self._parallel.map(lambda key: self._delete(request, key), keys))

    def _delete(self, request: dict[str, Any], key: Item) -> bool:
        try:
            with answered(StorageUnavailable):
                self._clients.dynamodb.delete_item(Key=key, **request)
        except ClientError as error:
            if code_of(error) == "ConditionalCheckFailedException":
                return False
            if is_conflict(error):  # someone's transaction is changing it: the page runs again, a little later
                raise StorageUnavailable("conflict") from error
            raise
        return True
