"""The protocol of docs/protocol.md as built, searched to the last state; and no rule of it is there for nothing.

`world.py` is the situation; `pacer.py`, `workers.py` and `others.py` are who acts; `search.py` visits everything;
`rules.py` says what is searched. Checked: I1, I2, I3, I4, I5, I6 and I10. Left out: time (B and its doubling, jitter),
batches of messages, start marks and attempts (I9), halt (to a row it is a refusal), `replace` (to a match it is a
retry with a new job), rates (I7, I8), the ETA and secrecy (I11, I12).

    python -m tests.model.test_protocol        prints the sizes, and the shortest counter-example of each rule
"""

from __future__ import annotations

import pytest

from tests.model.rules import REMOVALS, WORLDS, Removal
from tests.model.search import Found, search
from tests.model.world import Setup


@pytest.mark.parametrize("setup", WORLDS, ids=[each.name for each in WORLDS])
def test_no_interleaving_breaks_an_invariant(setup: Setup) -> None:
    found = search(setup)

    assert not found.broken, in_words(found)
    assert found.states > 1_000, "a world this small proves nothing"


@pytest.mark.parametrize("removal", REMOVALS, ids=[f"{each.section}, {each.rule}" for each in REMOVALS])
def test_without_a_rule_an_invariant_breaks(removal: Removal) -> None:
    found = search(removal.world, until=removal.breaks)

    assert any(each.split()[0] == removal.breaks for each in found.broken), f"found only {list(found.broken)}"


@pytest.mark.parametrize("removal", REMOVALS, ids=[f"{each.section}, {each.rule}" for each in REMOVALS])
def test_with_the_rule_the_same_world_holds(removal: Removal) -> None:
    found = search(removal.world._replace(without=frozenset()))

    assert not found.broken, in_words(found)


def in_words(found: Found) -> str:
    return "\n".join(f"{what}:\n  " + "\n  ".join(trace) for what, trace in found.broken.items())


if __name__ == "__main__":
    for each in WORLDS:
        print(f"{search(each).states:8,d} states: {each.name}", flush=True)
    for removal in REMOVALS:
        print(f"\n{removal.section}, without {removal.rule!r}")
        print(in_words(search(removal.world, until=removal.breaks)), flush=True)
