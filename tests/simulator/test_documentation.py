"""docs/your-own-kind.md and docs/kinds.md, run as they are written."""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import pytest

from infra.bundle import KINDS
from ops.simulator.faults import Call, CrashAt, Die, Fault, When
from ops.simulator.sluice_world import SimSluice
from ops.submission.json_lines import fields_of
from ops.submission.rows import new_job
from shared.domain.configuration import parse_settings
from shared.domain.job import State
from shared.domain.settings import UpstreamApi
from shared.submit.producers import MatchEnded, match_ended
from tests.infra.conftest import ROOT
from tests.kinds.real_kinds import HOUR_MS, RealKind

CHAT = b"gg\nnoob team\n" * 120


@cache
def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kind of the walk-through, under the name that its own test imports it by."""
    module = types.ModuleType("chat_review")
    exec(blocks("your-own-kind.md", "python")[0], module.__dict__)  # the document's text, and no other
    monkeypatch.setitem(sys.modules, "chat_review", module)
    return module


def test_the_walk_through_is_as_short_as_it_says_and_its_names_fit_together(module: Any) -> None:
    code, _ = blocks("your-own-kind.md", "python")
    body = [line for line in code.splitlines() if line.strip()]
    assert len(body) <= 30
    (toml,) = blocks("your-own-kind.md", "toml")
    (job_class,) = parse_settings(toml).classes.values()
    text = (ROOT / "docs" / "your-own-kind.md").read_text(encoding="utf-8")
    assert f"`{KINDS}/{job_class.kind}.py`" in text


def test_the_walk_throughs_own_test_passes(module: Any) -> None:
    namespace: dict[str, Any] = {}
    exec(blocks("your-own-kind.md", "python")[1], namespace)
    namespace["test_the_verdict_is_the_same_wherever_it_is_killed"]()


class Judged:
    """The world's context with the moderation's answers."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def call_upstream(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self._context.call_upstream(body)
        return {"flags": body["text"].count("noob")}


def run(module: Any, *faults: Any) -> SimSluice:
    """The class of the document's TOML and the job of its JSON line, by the production code, from end to end."""
    settings = parse_settings(blocks("your-own-kind.md", "toml")[0])

    def kinds(world: Any) -> Mapping[str, Any]:
        def process(job: Any, cursor: str, context: Any) -> Any:
            return module.process_chunk(job, cursor, Judged(context))

        return {"chat_review": RealKind(world, process, calls_per_chunk=module.calls_per_chunk)}

    sluice = SimSluice(settings, 3, faults=faults, kinds=kinds)
    sluice.blobs.objects["chats/4711.txt"] = CHAT
    (line,) = blocks("your-own-kind.md", "json")
    sluice.submit([new_job(fields_of(line.strip()), default_class=None)])
    assert sluice.drain(max_ms=3 * HOUR_MS)
    return sluice


def test_the_walk_through_runs_to_its_end(module: Any) -> None:
    sluice = run(module)
    (row,) = sluice.rows.values()
    assert (row.state, row.attempts) == (State.DONE, 0)
    assert sluice.blobs.objects["chat/chat-4711.json"] == b'{"lines": 240, "flags": 120}'
    assert len(sluice.ledger.outputs("chat-4711")) == 3
    assert len(sluice.upstream.calls) == 3


@pytest.mark.parametrize("when", list(When))
def test_the_walk_through_survives_a_kill_at_every_call(module: Any, when: When) -> None:
    clean = run(module)
    for call in range(1, clean.world.calls + 1):
        killed = run(module, CrashAt(call, when))
        assert killed.blobs.objects == clean.blobs.objects, f"crash {when} call {call}"
        assert killed.ledger.outputs("chat-4711") == clean.ledger.outputs("chat-4711")


def test_the_walk_through_survives_kills_at_every_third_chunk(module: Any) -> None:
    def kill(call: Call, when: When) -> Fault | None:
        return Die() if call.point == "kind.end" and call.nth % 3 == 0 and when is When.AFTER else None

    assert run(module, kill).blobs.objects == run(module).blobs.objects


# -- kinds.md


def test_the_configuration_of_all_kinds_is_valid_and_names_each_that_there_is() -> None:
    everything, bedrock = (parse_settings(text) for text in blocks("kinds.md", "toml"))
    kinds = {path.stem for path in (ROOT / KINDS).glob("*.py")} - {"__init__"}
    assert {each.kind for each in everything.classes.values()} == kinds
    assert None not in msgspec.structs.astuple(everything.producers)
    assert bedrock.upstreams["summaries"].api is UpstreamApi.CONVERSE


def test_the_event_of_the_document_can_be_read() -> None:
    (detail,) = blocks("kinds.md", "json")
    found = match_ended({"time": "2026-11-30T12:00:00Z", "detail": json.loads(detail)})
    assert isinstance(found, MatchEnded)
    assert (found.replays, found.screenshots) == (("replays/4711.pgn",), ("screenshots/4711/1.png",))


@pytest.mark.parametrize("document", ["kinds.md", "your-own-kind.md"])
def test_the_documents_point_at_what_there_is(document: str) -> None:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
