"""What `sluice.toml` may say about what submits jobs by itself: an event of the game's, and two schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from shared.domain import config_rules as rules
from shared.domain.settings import GuildReportsSettings, MatchEndedSettings, ProducerSettings, SessionSweepSettings

Read = Callable[[tuple[str, ...], rules.Values, rules.Section, list[str]], dict[str, Any]]

BUS: Final = rules.text(r"[A-Za-z0-9._/-]{1,256}", "the name of an EventBridge bus")

SOURCE: Final = rules.text(r"[A-Za-z0-9._/-]{1,256}", "the source that the event's sender names, like game.matches")

TABLE: Final = rules.text(r"[A-Za-z0-9_.-]{3,255}", "a DynamoDB table's name: 3 to 255 of A-Z, a-z, 0-9, _, - and .")

AT: Final = rules.text(r"([01][0-9]|2[0-3]):[0-5][0-9]", "a time of day in UTC, like 03:00")

PRODUCERS: Final[Mapping[str, rules.Section]] = {
    "match_ended": rules.Section(
        target=MatchEndedSettings,
        rules={"bus": BUS, "source": SOURCE, "replay_class": rules.NAME, "screenshot_class": rules.NAME},
        laws=(
            rules.Law(
                blames="replay_class",
                reads=("replay_class", "screenshot_class"),
                holds=lambda values: bool(values["replay_class"] or values["screenshot_class"]),
                expected="a class here or in screenshot_class, or no job would come of an event",
            ),
        ),
    ),
    "guild_reports": rules.Section(
        target=GuildReportsSettings, rules={"job_class": rules.NAME, "guilds_table": TABLE, "at": AT}
    ),
    "session_sweep": rules.Section(target=SessionSweepSettings, rules={"job_class": rules.NAME, "at": AT}),
}

_CLASS_KEYS: Final = ("job_class", "replay_class", "screenshot_class")


def read_producers(value: object, *, classes: Collection[str], faults: list[str], read: Read) -> ProducerSettings:
    """The producers that the document has a table of. Adds every fault in them, so that the result may lack some."""
    if not isinstance(value, dict):
        faults.append(rules.fault("producers", rules.kind_of(value), "a table"))
        return ProducerSettings()
    found: dict[str, Any] = {}
    for name, table in value.items():
        at = ("producers", name)
        if name not in PRODUCERS:
            faults.append(f"{rules.dotted(*at)}: unknown key{rules.did_you_mean(name, PRODUCERS)}")
        elif not isinstance(table, dict):
            faults.append(rules.fault(rules.dotted(*at), rules.kind_of(table), "a table"))
        else:
            values = read(at, table, PRODUCERS[name], faults)
            faults.extend(_unknown_classes(at, values, classes))
            if values.keys() == PRODUCERS[name].rules.keys():
                found[name] = PRODUCERS[name].target(**values)
    return ProducerSettings(**found)


def _unknown_classes(at: tuple[str, ...], values: rules.Values, classes: Collection[str]) -> list[str]:
    named = [(key, values[key]) for key in _CLASS_KEYS if values.get(key)]
    return [
        rules.fault(
            rules.dotted(*at, key),
            rules.shown(name),
            f"the name of a [classes.<name>] table{rules.did_you_mean(name, classes)}",
        )
        for key, name in named
        if name not in classes
    ]
