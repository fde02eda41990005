"""A deployment upgrades in the middle of a drain: this version over the one before, with half of 600 jobs done, a class
that an operator has paused and a class whose matches are ordered.

The emulator ends a function's processes when its code changes, in the middle of what they do. AWS lets them finish, so
this is the harder case. The table has no name of its own, in which case the emulator would replace it, rows and all,
for any change of its definition: that its physical id stays says that there was none.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

import pytest

from functions.worker.kinds.replay_summary import SEGMENT_BYTES
from ops.local.emulator import Emulator
from ops.local.scenario import Replay, make_replay, segment_count
from shared.domain.control import Control
from shared.domain.job import Flag, State
from tests.e2e.upgrade_site import RELEASE_BEFORE, Rows, Site, history_is_there, open_site

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not history_is_there(), reason=f"the release before, {RELEASE_BEFORE[:7]}, is not in this clone's history"
    ),
]

PLAIN, ORDERED, PAUSED = "plain", "ordered", "paused"
JOBS: Final = {PLAIN: 260, ORDERED: 260, PAUSED: 80}
GAMES: Final = {PLAIN: 2, ORDERED: 10, PAUSED: 2}
"""Jobs of one match."""
HALF: Final = 300
LONG: Final = range(80, JOBS[PLAIN], 40)
"""Every so many of the plain jobs is too long for one invocation, so that some are between two when it comes."""
LONG_BYTES, SHORT_BYTES = 30_000, (1_500, 2_400)
"""Of those that are not, one in two has two chunks."""
OUTAGE: Final = timedelta(minutes=40)
BY, WHY = "the operator of the day", "the summaries are wrong – Grüße"
GIVE_UP_S: Final = 1_200.0
"""For one part of the story. Each takes one or two minutes on a machine with nothing else to do."""
LOOK_EVERY_S, TICK_EVERY_S = 3.0, 20.0

STATEFUL: Final = ("AWS::DynamoDB::", "AWS::KMS::", "AWS::S3::Bucket", "AWS::SecretsManager::Secret", "AWS::SQS::Queue")
FINAL_PROPERTIES: Final = ("BucketName", "FifoQueue", "KeySchema", "KeySpec", "Name", "QueueName", "TableName")
"""CloudFormation replaces a resource for a change of one of these."""

_CLASS: Final = """
[classes.{name}]
kind = "replay_summary"
upstream = "summaries"
upstream_share = {share}
ordered = {ordered}
webhook = {webhook}
function_timeout_s = 15
chunk_margin_s = 2.0
batch_size = 5
slots = 8
retry = {{base_delay_s = 5.0, max_crashes = 20}}
"""

CONFIG: Final = (
    """
[sluice]
pacer_timeout_s = 40
customer_managed_key = true

[upstreams.summaries]
endpoint = "@UPSTREAM@/v1/summarise"
limit_per_s = 9.0
timeout_s = 5.0
"""
    + _CLASS.format(name=PLAIN, share=0.6, ordered="false", webhook="true")
    + _CLASS.format(name=ORDERED, share=0.2, ordered="true", webhook="false")
    + _CLASS.format(name=PAUSED, share=0.2, ordered="false", webhook="false")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The jobs of one class, in the order of their due times, and the file that submits them."""

    job_class: str
    replays: Sequence[Replay]
    path: str

    @property
    def segments(self) -> Mapping[str, int]:
        return {replay.job_id: segment_count(replay.body, SEGMENT_BYTES) for replay in self.replays}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Moment:
    """What was stored, and what the upstream had been asked, at one time."""

    rows: Rows
    calls: Sequence[str]
    """By idempotency key, oldest first."""
    physical_ids: Mapping[str, str]

    def states(self, job_class: str | None = None) -> Counter[str]:
        return Counter(row["state"]["S"] for row in jobs_of(self.rows, job_class))

    def committed(self) -> frozenset[str]:
        """The idempotency keys of all chunks whose output is stored."""
        outputs = [(pk.removeprefix("JOB#"), sk.removeprefix("OUT#")) for pk, sk in self.rows if sk.startswith("OUT#")]
        return frozenset(f"{job_id}:{cursor}:0" for job_id, cursor in outputs)

    def jobs(self, state: State) -> frozenset[str]:
        return frozenset(
            row["pk"]["S"].removeprefix("JOB#") for row in jobs_of(self.rows) if row["state"]["S"] == state
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Upgrade:
    """The whole story as evidence: right before the deployment, right before the paused class was resumed, and when all
    was done."""

    site: Site
    loads: Mapping[str, Load]
    deploying: Moment
    resuming: Moment
    drained: Moment
    objects: int
    paused_with: Any
    """What the version before answered to the pause, and the version after to the resume."""
    resumed_with: Any
    control: Control
    """Of the paused class, as the version after reads it before the resume."""
    submitted_again: Sequence[Mapping[str, Any]]

    @property
    def segments(self) -> Mapping[str, int]:
        return {job_id: number for load in self.loads.values() for job_id, number in load.segments.items()}


def jobs_of(rows: Rows, job_class: str | None = None) -> list[Mapping[str, Any]]:
    jobs = [row for (_, sk), row in rows.items() if sk == "JOB"]
    return [row for row in jobs if job_class is None or row["job_class"]["S"] == job_class]


def make_load(site: Site, job_class: str, *, first: int) -> Load:
    """`first` is the number of the class's first match: no two of the 600 replays have a segment in common."""
    games = GAMES[job_class]
    replays = []
    for number in range(JOBS[job_class]):
        match, game = number // games, number % games
        least = LONG_BYTES if job_class == PLAIN and number in LONG else SHORT_BYTES[number % 2]
        replay = make_replay(7, first + match, game, min_bytes=least)
        replays.append(Replay(job_id=f"{job_class}-{match:03d}-{game}", match_id=replay.match_id, text=replay.text))
    path = site.directory / f"{job_class}.jsonl"
    began = datetime.now(UTC) - OUTAGE
    due = [began + OUTAGE * number / len(replays) for number in range(len(replays))]
    path.write_text("".join(_line(replay, at) for replay, at in zip(replays, due, strict=True)), encoding="utf-8")
    return Load(job_class=job_class, replays=replays, path=str(path))


def _line(replay: Replay, due: datetime) -> str:
    payload = json.loads(replay.payload)
    job = {"job_id": replay.job_id, "match_id": replay.match_id, "payload": payload, "due": due.isoformat()}
    return json.dumps(job, ensure_ascii=False) + "\n"


def moment(site: Site) -> Moment:
    return Moment(rows=site.rows(), calls=tuple(site.upstream.log), physical_ids=site.physical_ids())


def drain_until(site: Site, reached: Callable[[Rows], bool], *, classes: Sequence[str]) -> None:
    """Look every few seconds, and give each class its tick in time, until the rows say so."""
    until_s, ticked_s = time.monotonic() + GIVE_UP_S, 0.0
    while not reached(rows := site.rows()):
        assert time.monotonic() < until_s, Counter((row["job_class"]["S"], row["state"]["S"]) for row in jobs_of(rows))
        if time.monotonic() - ticked_s > TICK_EVERY_S:
            for job_class in classes:
                site.tick(job_class)
            ticked_s = time.monotonic()
        time.sleep(LOOK_EVERY_S)


def done(rows: Rows) -> int:
    return sum(row["state"]["S"] == State.DONE for row in jobs_of(rows))


@pytest.fixture(scope="module")
def upgrade(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgrade]:
    with open_site(emulator, tmp_path_factory.mktemp("upgrade"), config=CONFIG) as site:
        yield upgraded(site)


def upgraded(site: Site) -> Upgrade:
    site.cdk(site.before, "bootstrap", "deploy")
    paused_with = site.ops(site.before, "pause", PAUSED, "--reason", WHY, "--by", BY)
    loads = {
        job_class: make_load(site, job_class, first=first)
        for job_class, first in ((PLAIN, 0), (ORDERED, 1_000), (PAUSED, 2_000))
    }
    for load in loads.values():
        site.upload(load.replays)
    for load in loads.values():
        site.ops(site.before, "submit", load.path, "--job-class", load.job_class)
    drain_until(site, lambda rows: done(rows) >= HALF, classes=(PLAIN, ORDERED, PAUSED))
    deploying = moment(site)
    site.cdk(site.after, "deploy")
    drain_until(site, lambda rows: done(rows) == JOBS[PLAIN] + JOBS[ORDERED], classes=(PLAIN, ORDERED, PAUSED))
    resuming, control = moment(site), site.ports().ledger.read_control(PAUSED)
    resumed_with = site.ops(site.after, "resume", PAUSED, "--reason", "they are right", "--by", BY)
    drain_until(site, lambda rows: done(rows) == sum(JOBS.values()), classes=(PAUSED,))
    drained, objects = moment(site), site.objects("summaries/")
    again = [site.ops(site.after, "submit", load.path, "--job-class", load.job_class) for load in loads.values()]
    return Upgrade(
        site=site,
        loads=loads,
        deploying=deploying,
        resuming=resuming,
        drained=drained,
        objects=objects,
        paused_with=paused_with,
        resumed_with=resumed_with,
        control=control,
        submitted_again=again,
    )


def test_it_comes_in_the_middle_of_a_drain(upgrade: Upgrade) -> None:
    before = upgrade.deploying
    for job_class in JOBS:
        print(f"{job_class}: {dict(before.states(job_class))} at the deployment")
    assert HALF <= before.states()[State.DONE] < sum(JOBS.values()) * 2 / 3
    for job_class in (PLAIN, ORDERED):
        states = before.states(job_class)
        assert states[State.QUEUED] > 0, job_class
        assert 0 < states[State.DONE] < JOBS[job_class], job_class
    in_flight = before.jobs(State.QUEUED)
    between_chunks = in_flight & {key.split(":")[0] for key in before.committed()}
    print(f"{len(in_flight)} in flight, {len(between_chunks)} of them with chunks behind them")
    assert between_chunks


def test_no_stateful_resource_is_replaced(upgrade: Upgrade) -> None:
    before, after = upgrade.site.before.resources(), upgrade.site.after.resources()
    stateful = [logical_id for logical_id, resource in before.items() if _is_stateful(resource)]
    print(f"{len(stateful)} stateful resources: {', '.join(stateful)}")
    assert {before[logical_id]["Type"].split("::")[1] for logical_id in stateful} == {
        "DynamoDB", "KMS", "S3", "SQS", "SecretsManager",
    }  # fmt: skip
    assert [logical_id for logical_id in stateful if logical_id not in after] == []
    assert {logical_id: _fixed(after[logical_id]) for logical_id in stateful} == {
        logical_id: _fixed(before[logical_id]) for logical_id in stateful
    }
    behind = upgrade.drained.physical_ids
    assert {logical_id: behind[logical_id] for logical_id in stateful} == {
        logical_id: upgrade.deploying.physical_ids[logical_id] for logical_id in stateful
    }


def _is_stateful(resource: Mapping[str, Any]) -> bool:
    kind: str = resource["Type"]
    return kind.startswith(STATEFUL) and not kind.endswith("Policy")


def _fixed(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = {name: value for name, value in resource.get("Properties", {}).items() if name in FINAL_PROPERTIES}
    return {"Type": resource["Type"], **properties}


def test_the_pause_outlives_the_deployment(upgrade: Upgrade) -> None:
    pause = upgrade.paused_with["pause"]
    print(f"the version before: {pause}\nthe version after: {upgrade.control.pause}, {upgrade.resumed_with}")
    assert BY in pause["by"]
    assert pause["why"] == WHY
    assert upgrade.control.pause == Flag(**pause)
    assert upgrade.resumed_with["was"] == pause
    last = upgrade.control.history[-1]
    assert last.paused
    assert last.waiting.total == JOBS[PAUSED]
    untouched = jobs_of(upgrade.deploying.rows, PAUSED)
    assert {row["state"]["S"] for row in untouched} == {State.WAITING}
    assert sorted(untouched, key=str) == sorted(jobs_of(upgrade.resuming.rows, PAUSED), key=str)
    assert [key for key in upgrade.resuming.calls if key.startswith(f"{PAUSED}-")] == []


def test_nothing_is_lost(upgrade: Upgrade) -> None:
    assert upgrade.drained.states() == {State.DONE: sum(JOBS.values())}
    assert upgrade.objects == sum(JOBS.values())
    chunks = Counter(key.split(":")[0] for key in upgrade.drained.committed())
    assert chunks == upgrade.segments
    kept = {
        key: row
        for key, row in upgrade.deploying.rows.items()
        if key[1].startswith("OUT#") or (key[1] == "JOB" and row["state"]["S"] == State.DONE)
    }
    print(f"{len(kept)} rows of finished jobs and outputs, stored by the version before")
    assert {key: upgrade.drained.rows[key] for key in kept} == kept
    answers = [(answer["created"], answer["existing"], answer["refused"]) for answer in upgrade.submitted_again]
    assert answers == [(0, number, 0) for number in JOBS.values()]


def test_nothing_is_repeated(upgrade: Upgrade) -> None:
    report, calls = upgrade.site.upstream.report(with_keys=False), upgrade.drained.calls
    effects = set(calls)
    assert report["accepted"] == len(effects) == sum(upgrade.segments.values())
    assert Counter(key.split(":")[0] for key in effects) == upgrade.segments
    assert report["texts_answered_twice"] + report["conflicts"] == 0
    print(f"{len(effects)} effects, {len(calls) - len(effects)} calls repeated under their old key")
    later = calls[len(upgrade.deploying.calls) :]
    assert upgrade.deploying.committed().isdisjoint(later), "what the version before committed, nobody runs again"
    for job_id, chunks in grouped(calls, lambda key: key.split(":")[0]).items():
        # The next chunk's first call says that this one is committed: from then on it may not be called again.
        assert chunks == sorted(chunks, key=_cursor), job_id


def test_ordered_matches_keep_their_order(upgrade: Upgrade) -> None:
    calls = [key for key in upgrade.drained.calls if key.startswith(f"{ORDERED}-")]
    matches = grouped(calls, lambda key: key.rpartition("-")[0])
    assert len(matches) == JOBS[ORDERED] // GAMES[ORDERED]
    for match, keys in matches.items():
        jobs = [job_id for job_id, _ in groupby(key.split(":")[0] for key in keys)]
        assert jobs == [f"{match}-{place}" for place in range(GAMES[ORDERED])]
    committed = upgrade.deploying.committed()
    crossing = [match for match, keys in matches.items() if 0 < len(committed.intersection(keys)) < len(set(keys))]
    print(f"{len(matches)} matches in order, {len(crossing)} of them begun before the deployment and ended after it")
    assert crossing


def grouped(keys: Iterable[str], name: Callable[[str], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(name(key), []).append(key)
    return groups


def _cursor(key: str) -> list[str]:
    return key.split(":")
