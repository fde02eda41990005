"""What a tick's plan was made from, kept with its line: `explain` makes the same plan again and says why.

Written by name, without what has its default and what the line holds anyway: some 300 bytes a tick. A field that a
newer version added reads as its default; one that is gone, or a plan by a version that kept nothing, explains nothing.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from shared.core.pacing import Snapshot, TickPlan, plan_tick
from shared.core.runs import Carry, TickLine
from shared.core.values import frozen

_ON_THE_LINE: Final = frozenset({"waiting", "in_flight", "paused"})


@frozen
class Explained:
    """A tick's line, and the plan that its facts give again."""

    line: TickLine
    snapshot: Snapshot
    plan: TickPlan


def pack(snapshot: Snapshot) -> str:
    """The snapshot as compact JSON."""
    kept = {
        each.name: _plain(getattr(snapshot, each.name))
        for each in fields(Snapshot)
        if each.name not in _ON_THE_LINE and getattr(snapshot, each.name) != _default(each)
    }
    return json.dumps(kept, separators=(",", ":"), allow_nan=False)


def explain(line: TickLine) -> Explained | None:
    """The plan of this tick, made again; None where the line does not say enough."""
    snapshot = _unpack(line)
    if snapshot is None:
        return None
    return Explained(line=line, snapshot=snapshot, plan=plan_tick(snapshot, line.at_ms))


def _unpack(line: TickLine) -> Snapshot | None:
    known = {each.name for each in fields(Snapshot)}
    try:
        kept = json.loads(line.facts or "{}")
        given: dict[str, Any] = {name: kept[name] for name in known.intersection(kept)}
        if "carry" in given:
            given["carry"] = Carry(live=given["carry"][0], recovery=given["carry"][1])
        return Snapshot(waiting=line.waiting, in_flight=line.in_flight, paused=line.paused, **given)
    except (ValueError, TypeError, LookupError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Carry):
        return [value.live, value.recovery]
    return value if isinstance(value, (int, float)) or value is None else dict(value)


def _default(each: Field[Any]) -> Any:
    if each.default is not MISSING:
        return each.default
    return MISSING if each.default_factory is MISSING else each.default_factory()
