"""The guilds that there are: ids from a table of the game's."""

from __future__ import annotations

from collections.abc import Iterator

from shared.aws.clients import Clients
from shared.aws.keys import Item
from shared.aws.paging import scan_page


def guild_ids(clients: Clients, table: str) -> Iterator[str]:
    """The key `guild_id` of every item, a page at a time. Raises `StorageUnavailable`. Needs dynamodb:Scan on it."""
    resume: Item | None = None
    while True:
        items, resume = scan_page(
            clients.dynamodb, resume=resume, TableName=table, ProjectionExpression="guild_id", ConsistentRead=True
        )
        yield from (item["guild_id"]["S"] for item in items)
        if resume is None:
            return
