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
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

from jinja2 import Environment, StrictUndefined, Template
from msgspec import Struct

from shared.aws.clients import Clients
from shared.aws.keys import Item
from shared.aws.table import query_page
from shared.domain.iso_week import day_after, days_of, end_ms, first_day
from shared.domain.job import Job
from shared.errors import BadPayload, ConfigError
from shared.kind import Chunk, ChunkContext, payload_of, payload_text

calls_per_chunk: Final = 0

PAGE_ROWS: Final = 200
"""Matches read per chunk: what a crash may cost."""

TOP_MAPS: Final = 5
TOP_PLAYERS: Final = 10
LONGEST_NAME: Final = 80
"""Characters of a map's or a player's name that a report shows."""

MAX_REPORT_BYTES: Final = 1_048_576
"""What is read of a report that is there already: far more than one can have."""

RESULTS: Final = ("won", "lost", "drawn")
SUMS: Final = ("points_for", "points_against", "seconds")
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class MatchPage(Struct, frozen=True, kw_only=True):
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
    # A day is the beginning of all times in it, and so sorts before them.
    low, high = first_day(week).isoformat(), day_after(week).isoformat()
    page = matches.page(guild_id, low=low, high=high, resume=cursor or None)
    output = add_up(page.matches)
    if page.resume is not None:
        return Chunk(next_cursor=page.resume, output=output)
    report = report_of(guild_id, week, [*context.outputs(), output])
    return Chunk(next_cursor=None, output=output | {"report": _publish(report, context)})


def _asked(job: Job) -> tuple[str, str]:
    """The guild and the week, which was over when the job was due: a report of half a week would stay for ever."""
    guild_id, week = payload_text(job, "guild_id"), str(payload_of(job).get("week"))
    try:
        over = end_ms(week) <= job.due_ms
    except ValueError:
        raise BadPayload("week: expected an ISO week like 2026-W53") from None
    if not over:
        raise BadPayload("week: expected one that was over when the job was due")
    return guild_id, week


# -- the figures


def add_up(matches: Iterable[Item]) -> dict[str, Any]:
    """What a page comes to. An item that cannot be read is counted and left out: it must not cost the report."""
    sums: Counter[str] = Counter()
    days: Counter[str] = Counter()
    maps: Counter[str] = Counter()
    players: dict[str, list[int]] = {}
    for item in matches:
        try:
            day, map_name, points, numbers = _read(item)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            sums["unreadable"] += 1
            continue
        sums.update(numbers)
        days[day] += 1
        maps[map_name] += 1
        for name, scored in points.items():
            played = players.setdefault(name, [0, 0])
            played[0] += 1
            played[1] += scored
    maps.pop("", None)
    return {"sums": dict(sums), "days": dict(days), "maps": dict(maps), "players": players}


def _read(item: Item) -> tuple[str, str, dict[str, int], dict[str, int]]:
    result = item.get("result", {}).get("S", "")
    numbers = {name: _number(item.get(name, {"N": "0"})) for name in SUMS}
    numbers |= {"matches": 1, result if result in RESULTS else "undecided": 1}
    points = {name[:LONGEST_NAME]: _number(value) for name, value in item.get("players", {"M": {}})["M"].items()}
    return item["ended"]["S"][:10], item.get("map", {}).get("S", "")[:LONGEST_NAME], points, numbers


def _number(attribute: Mapping[str, Any]) -> int:
    return int(Decimal(attribute["N"]))


def report_of(guild_id: str, week: str, pages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The pages' figures in one, in an order that does not depend on where pages were cut."""
    sums, by_day, by_map = (_total(page[part] for page in pages) for part in ("sums", "days", "maps"))
    played, scored = (
        _total({name: player[place] for name, player in page["players"].items()} for page in pages) for place in (0, 1)
    )
    matches = sums["matches"]
    days = [
        {"date": day.isoformat(), "weekday": weekday, "matches": by_day[day.isoformat()]}
        for day, weekday in zip(days_of(week), WEEKDAYS, strict=True)
    ]
    players: list[dict[str, Any]] = [{"name": name, "matches": played[name], "points": scored[name]} for name in scored]
    maps: list[dict[str, Any]] = [{"name": name, "matches": by_map[name]} for name in by_map]
    return {
        "guild_id": guild_id,
        "week": week,
        "first_day": days[0]["date"],
        "last_day": days[-1]["date"],
        "matches": matches,
        **{name: sums[name] for name in (*RESULTS, *SUMS, "undecided", "unreadable")},
        "win_percent": (200 * sums["won"] + matches) // (2 * matches) if matches else 0,
        "days": days,
        "maps": sorted(maps, key=lambda row: (-row["matches"], row["name"]))[:TOP_MAPS],
        "players": sorted(players, key=lambda row: (-row["points"], -row["matches"], row["name"]))[:TOP_PLAYERS],
    }


def _total(parts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


# -- the report


def _publish(report: Mapping[str, Any], context: ChunkContext) -> str:
    """Put both forms; returns the name of the one that decides."""
    guild = hashlib.sha256(report["guild_id"].encode("utf-8", "surrogatepass")).hexdigest()
    name = f"reports/{report['week']}/{guild}"
    body = json.dumps(report, ensure_ascii=False, indent=1).encode("utf-8")
    if not context.put_blob_once(f"{name}.json", body, content_type="application/json"):
        body = context.read_blob(f"{name}.json", start=0, length=MAX_REPORT_BYTES)
    page = render(json.loads(body)).encode("utf-8")
    context.put_blob_once(f"{name}.html", page, content_type="text/html; charset=utf-8")
    return f"{name}.json"


def render(report: Mapping[str, Any]) -> str:
    most = max(day["matches"] for day in report["days"]) or 1
    days = [{**day, "bar_percent": 100 * day["matches"] // most} for day in report["days"]]
    hours = f"{report['seconds'] // 3600}.{report['seconds'] % 3600 // 360}"
    return _template().render({**report, "days": days, "hours": hours})


@cache
def _template() -> Template:
    """Escapes what it is given: guilds and players choose their names."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"))


# -- DynamoDB


@cache
def _matches(table: str) -> Matches:
    """One per process: a client costs more than a page."""
    return DynamoMatches(Clients(), table)


class DynamoMatches:
    """`Matches` in a table of someone else's. Needs dynamodb:Query on it."""

    def __init__(self, clients: Clients, table: str, *, page_rows: int = PAGE_ROWS) -> None:
        self._clients = clients
        self._table = table
        self._page_rows = page_rows

    def page(self, guild_id: str, *, low: str, high: str, resume: str | None) -> MatchPage:
        """A consistent read: a page that is read again after a crash must add up to the same."""
        guild = {"S": guild_id}
        items, last = query_page(
            self._clients.dynamodb,
            resume=None if resume is None else {"guild_id": guild, "ended": {"S": resume}},
            TableName=self._table,
            Limit=self._page_rows,
            ConsistentRead=True,
            KeyConditionExpression="guild_id = :guild AND ended BETWEEN :low AND :high",
            ExpressionAttributeValues={":guild": guild, ":low": {"S": low}, ":high": {"S": high}},
        )
        return MatchPage(matches=items, resume=None if last is None else last["ended"]["S"])
