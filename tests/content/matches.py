"""The weeks of guilds: matches as items of the game's table, and the table in memory."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from functions.worker.kinds.guild_weekly_report import MatchPage
from shared.aws.keys import Item

MAPS = ("Harbour", "Old Town", "Glacier", "Ōsaka", "Canyon", "Foundry")
NAMES = (
    "Zoë",
    "王小明",
    "Đorđe",
    "Noa",
    "Ludwig <b>",
    "Ångström",
    "Fatima",
    "Iñaki",
    "O'Brien",
    "Ayşe",
    "Jo",
    "Kofi",
    "Mia",
)


def match(guild_id: str, number: int, ended: datetime, **changes: Any) -> Item:
    chance = random.Random(f"{guild_id}/{number}")
    points = {name: {"N": str(chance.randint(0, 30))} for name in chance.sample(NAMES, 5)}
    item: Item = {
        "guild_id": {"S": guild_id},
        "ended": {"S": f"{ended:%Y-%m-%dT%H:%M:%SZ}#m-{number}"},
        "result": {"S": chance.choice(("won", "won", "lost", "drawn"))},
        "map": {"S": chance.choice(MAPS)},
        "points_for": {"N": str(chance.randint(20, 90))},
        "points_against": {"N": str(chance.randint(20, 90))},
        "seconds": {"N": str(chance.randint(300, 2400))},
        "players": {"M": points},
    }
    return item | changes


def a_week(guild_id: str, monday: datetime, count: int) -> list[Item]:
    """Matches spread over a week, the first of them in its first second and the last in its last."""
    step = timedelta(days=7) / count
    last = monday + timedelta(days=7) - timedelta(seconds=1)
    moments = [monday + step * number for number in range(count - 1)] + [last]
    return [match(guild_id, number, ended) for number, ended in enumerate(moments)]


def utc(year: int, month: int, day: int) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


@dataclass(slots=True)
class MemoryMatches:
    """The table, in pages of `page_rows`."""

    items: list[Item]
    page_rows: int = 10
    asked: list[tuple[str, str]] = field(default_factory=list)

    def page(self, guild_id: str, *, low: str, high: str, resume: str | None) -> MatchPage:
        self.asked.append((low, high))
        own = [item for item in self.items if item["guild_id"]["S"] == guild_id]
        found = sorted((item for item in own if low <= item["ended"]["S"] < high), key=_ended)
        rest = [item for item in found if resume is None or _ended(item) > resume.encode()]
        page = rest[: self.page_rows]
        return MatchPage(matches=page, resume=page[-1]["ended"]["S"] if len(rest) >= self.page_rows else None)


def _ended(item: Item) -> bytes:
    key: str = item["ended"]["S"]
    return key.encode()
