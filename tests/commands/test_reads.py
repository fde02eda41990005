"""What an operator's look costs: as many requests on a ledger of any size, and none of the index."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shared.memory.ledger import MemoryLedger
from tests.commands.world import CLASS, World, worked

WHY = ("--reason", "why")
COMMANDS: tuple[tuple[object, ...], ...] = (
    ("status",),
    ("status", CLASS, "--json"),
    ("watch", CLASS, "--times", 1),
    ("explain", CLASS),
    ("explain", CLASS, "--tick", 2, "--json"),
    ("resume", CLASS, *WHY),
    ("rate", CLASS, 2.5, *WHY),
    ("rate", CLASS, "--clear", *WHY),
    ("concurrency", CLASS),
    ("concurrency", CLASS, 8, *WHY),
    ("concurrency", CLASS, "--back", *WHY),
    ("pause", CLASS, *WHY, "--dry-run"),
    ("halt", CLASS, *WHY, "--dry-run"),
)
POLLS = 20
"""A pause is committed after its lease of 10 s and looks twice a second whether it is: by time, not by rows."""


class Counting:
    """The ledger as a command sees it: what the world's own ticks and workers ask meanwhile is not counted."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ledger, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.asked[name] += 1
            return method(*args, **kwargs)

        return call


def asked(world: World, *command: object) -> dict[str, int]:
    """Reads by name; writes are left out."""
    counting = world.broken["ledger"] = Counting(world.sluice.ledger)
    assert world.run(*command).exit_code == 0
    del world.broken["ledger"]
    return {name: count for name, count in counting.asked.items() if not name.startswith(("set_", "resume"))}


@pytest.fixture(scope="module")
def sizes() -> tuple[World, World]:
    """Both have ticked for five minutes; one has fifty times the rows of the other."""
    return worked(100, minutes=5), worked(5_000, minutes=5)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(map(str, command)))
def test_a_look_reads_control_once_and_nothing_else(sizes: tuple[World, World], command: tuple[object, ...]) -> None:
    assert [asked(world, *command) for world in sizes] == [{"read_control": 1}] * 2


@pytest.mark.parametrize("command", ["pause", "halt"])
def test_a_stop_looks_at_control_until_it_is_committed(sizes: tuple[World, World], command: str) -> None:
    for world in sizes:
        (name, looks), *others = asked(world, command, CLASS, *WHY).items()

        assert (name, others) == ("read_control", [])
        assert looks <= 2 + POLLS + 2


def test_a_plan_of_a_live_class_reads_one_page_of_each_list(sizes: tuple[World, World]) -> None:
    # 3 priorities, fresh and retried rows, 4 shards; nothing is counted.
    assert [asked(world, "plan", CLASS) for world in sizes] == [{"read_control": 1, "read_stats": 1, "page": 24}] * 2


def test_exact_is_what_counts(sizes: tuple[World, World]) -> None:
    assert asked(sizes[0], "status", "--exact")["count"] > 0
