"""The tables of others that a kind works on: its class's options name them, its worker alone is granted them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.core.settings import ClassSettings

_TABLE_NAME: Final = r"[A-Za-z0-9_.-]{3,255}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTable:
    """Which of a class's options names the table, and what its worker does with the table's items."""

    option: str
    actions: tuple[str, ...]


KIND_TABLES: Final[Mapping[str, KindTable]] = {
    "guild_weekly_report": KindTable(option="matches_table", actions=("dynamodb:Query",)),
    "session_sweep": KindTable(option="sessions_table", actions=("dynamodb:Scan", "dynamodb:DeleteItem")),
}
"""A kind that works on a table of its own has a line here: this is all that its file cannot say for itself."""


def kind_table_faults(settings: ClassSettings) -> list[str]:
    """Without its table's name a worker would be deployed that can only fail."""
    table = KIND_TABLES.get(settings.kind)
    if table is None:
        return []
    name = settings.options.get(table.option, "")
    if re.fullmatch(_TABLE_NAME, name):
        return []
    got = "other text" if name else "nothing"
    return [
        f"classes.{settings.name}.options.{table.option}: got {got}, expected a DynamoDB table's name:"
        " 3 to 255 of A-Z, a-z, 0-9, _, - and ."
    ]
