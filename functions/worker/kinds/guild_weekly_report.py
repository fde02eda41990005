"""Report a guild's week: its matches, page by page, then one report as JSON and as a page in HTML.

Payload: {"guild_id": "<id>", "week": "2026-W53"}. The matches are read from a table of the game's, which the class's
option `matches_table` names. Its keys are `guild_id` and `ended`, the time in ISO 8601 (UTC) and whatever makes it
unique, as in "2027-01-03T21:14:07Z#m-4711"; `result` is won, lost or drawn, `map` a text, `points_for`,
`points_against` and `seconds` are numbers, `players` maps a name to that player's points. All of them may be missing.

A chunk is a page, its cursor the last key of the page before, its output what the page adds up to. The last chunk adds
the outputs up and writes `reports/<week>/<guild>.json`, once: whoever comes second renders what is there, so that both
forms tell the same, and there is one report of a week whatever happens. It contains no time but the week's.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

from jinja2 import Environment, StrictUndefined, Template

from shared.aws.clients import Clients
from shared.aws.keys import Item
from shared.aws.paging import query_page
from shared.core.iso_week import days_of, end_ms
from shared.core.model import Job
from shared.errors import BadPayload, ConfigError
from shared.kind import Chunk, ChunkContext

calls_per_chunk: Final = 0

PAGE_ROWS: Final = 200
TOP_MAPS: Final = 5
TOP_PLAYERS: Final = 10
MAX_REPORT_BYTES: Final = 1_048_576

RESULTS: Final = ("won", "lost", "drawn")
SUMS: Final = ("points_for", "points_against", "seconds")
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchPage:
    """Items of one page, and the sort key that the next page follows on, or None after the last."""

    matches: Sequence[Item]
    resume: str | None


class Matches(Protocol):
    """The game's table of matches, as the report needs it."""

    def page(self, guild_id: str, *, low: str, high: str, resume: str | None) -> MatchPage:
        """The next page of the guild's matches with low <= ended < high. Raises `StorageUnavailable`."""
        ...


def process_chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
    if "matches_table" not in context.options:
        raise ConfigError(["options.matches_table: got nothing, expected the name of a DynamoDB table"])
    return report_page(_matches(context.options["matches_table"]), job, cursor, context)


def report_page(matches: Matches, job: Job, cursor: str, context: ChunkContext) -> Chunk:
    guild_id, week = _asked(job)
    days = days_of(week)
    # A day is a prefix of all times in it, and sorts before them.
    low, high = days[0].isoformat(), days_of_next(week)
    page = matches.page(guild_id, low=low, high=high, resume=cursor or None)
    output = add_up(page.matches)
    if page.resume is not None:
        return Chunk(next_cursor=page.resume, output=output)
    report = report_of(guild_id, week, [*context.outputs(), output])
    return Chunk(next_cursor=None, output=output | _publish(report, context))


def days_of_next(week: str) -> str:
    """The first day that is not of this week."""
    return days_of_week_after(week)


def _asked(job: Job) -> tuple[str, str]:
    """The guild and the week, which was over when the job was due: a report of half a week would stay for ever."""
    payload = json.loads(job.payload)
    guild_id, week = (payload.get("guild_id"), payload.get("week")) if isinstance(payload, dict) else (None, None)
    if not isinstance(guild_id, str) or not guild_id:
        raise BadPayload("guild_id: expected the id of a guild")
    try:
        over = end_ms(str(week)) <= job.due_ms
    except ValueError:
        raise BadPayload("week: expected an ISO week like 2026-W53") from None
    if not over:
        raise BadPayload("week: expected one that was over when the job was due")
    return guild_id, str(week)
