"""Ordered matches of ten jobs, one job in twenty poison, workers killed: the order holds, and so does everything else.

`ordered-poison` is the scenario at its size; here it has a fifth of its matches. What is asserted is read from what ran
when, and from the ids as they were submitted, and not from the numbers that the ledger gave them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from ops.simulator.drive import Drive
from ops.simulator.kinds import ChunkStart
from ops.simulator.operator_rounds import Remedy
from ops.simulator.scenario import load_scenario
from ops.simulator.world import START_MS
from shared.domain import lifecycle, ordering
from shared.domain.job import Job, State
from shared.domain.lifecycle import Move
from shared.domain.ordering import Match, MatchStep
from shared.domain.settings import ClassSettings
from shared.steps.turns import end_and_pass_on
from shared.worker import message, retry

SEEDS = (1, 2, 3)
MATCHES, JOBS = 40, 10
WORD_MS = START_MS + 1_800_000


def drive_of(
    seed: int,
    *,
    poison_share: float | None = None,
    kills: bool = True,
    max_hours: float = 12.0,
    stop_at_once: bool = False,
) -> Drive:
    scenario = load_scenario("ordered-poison")
    (source,) = scenario.sources
    source = replace(source, count=MATCHES * JOBS)
    if poison_share is not None:
        source = replace(source, poison_share=poison_share)
    trouble = scenario.trouble if kills else replace(scenario.trouble, kills_per_minute=0)
    changed = scenario.with_(sources=(source,), trouble=trouble, max_hours=max_hours, expect=())
    drive = Drive(changed, seed, stop_at_once=stop_at_once)
    drive.run()
    return drive


driven = cache(drive_of)


def job_id(match: int, place: int) -> str:
    return f"job-0-{match * JOBS + place}"


def poison_places(drive: Drive, match: int) -> list[int]:
    """Where in a match its poison is, as it was submitted."""
    payloads = [json.loads(drive.sluice.rows[job_id(match, place)].payload) for place in range(JOBS)]
    return [place for place, payload in enumerate(payloads) if payload.get("poison")]


def first_starts(drive: Drive) -> dict[int, list[ChunkStart]]:
    """Match -> the first start of each of its jobs, replacements included, as they came."""
    begun: set[str] = set()
    starts: defaultdict[int, list[ChunkStart]] = defaultdict(list)
    for start in drive.sluice.kinds["work"].starts:
        if start.job_id not in begun:
            begun.add(start.job_id)
            starts[int(start.job_id.split("-")[2]) // JOBS].append(start)
    return starts


@pytest.mark.parametrize("seed", SEEDS)
def test_first_chunks_start_in_the_order_of_submission_and_a_replacement_in_the_dead_ones_place(seed: int) -> None:
    drive = driven(seed)
    for match, starts in first_starts(drive).items():
        expected = []
        for earlier in (job_id(match, place) for place in range(JOBS)):
            expected += [earlier, f"{earlier}-b"] if f"{earlier}-b" in drive.sluice.rows else [earlier]
        assert [start.job_id for start in starts] == expected, f"match {match} of seed {seed}"
    assert len(first_starts(drive)) == MATCHES


@pytest.mark.parametrize("seed", SEEDS)
def test_until_the_operators_word_a_dead_job_holds_what_is_behind_it_and_nothing_else(seed: int) -> None:
    drive = driven(seed)
    begun = {start.job_id for start in drive.sluice.kinds["work"].starts if start.at_ms < WORD_MS}
    done_ms = {step.after.job_id: step.at_ms for step in drive.sluice.ledger.steps if step.after.state is State.DONE}
    held = 0
    for match in range(MATCHES):
        for place in range(JOBS):
            dead_before = any(poison < place for poison in poison_places(drive, match))
            name = job_id(match, place)
            assert (name in begun) is not dead_before, f"{name} of seed {seed}"
            assert place in poison_places(drive, match) or (done_ms[name] < WORD_MS) is not dead_before
            held += dead_before
    assert drive.rounds.met is not None
    assert (drive.rounds.met.held, drive.rounds.met.free) == (held, 0)
    assert held > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_after_the_word_everything_ends_as_it_was_decided(seed: int) -> None:
    drive = driven(seed)
    rows, given, result = drive.sluice.rows, drive.rounds.given, drive.finish()
    last = {Remedy.SKIP: State.SKIPPED, Remedy.MEND: State.DONE, Remedy.REPLACE: State.REPLACED}
    expected = {name: last[words[-1]] for name, words in given.items()}
    assert {name: job.state for name, job in rows.items()} == dict.fromkeys(rows, State.DONE) | expected
    assert set(given) == {job_id(match, place) for match in range(MATCHES) for place in poison_places(drive, match)}
    assert (result.violations, result.figures.redone_chunks) == ({}, 0)
    assert drive.sluice.report().crashes >= 10


def test_every_word_is_given_and_a_job_that_dies_again_is_given_up() -> None:
    words = [words for seed in SEEDS for words in driven(seed).rounds.given.values()]
    assert {given[0] for given in words} == set(Remedy)
    assert all(given[1:] == [Remedy.SKIP] for given in words if given[0] is Remedy.RETRY)
    assert all(len(given) == 1 for given in words if given[0] is not Remedy.RETRY)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_poison_job_burns_exactly_its_attempts_with_growing_delays_and_so_does_its_retry(seed: int) -> None:
    drive = driven(seed)
    moves: defaultdict[str, list[Any]] = defaultdict(list)
    for step in drive.sluice.ledger.steps:
        if step.name in ("fail", "die", "retry"):
            moves[step.after.job_id].append(step)
    life = ["fail", "fail", "fail", "die"]
    for name, words in drive.rounds.given.items():
        again = {Remedy.RETRY: ["retry", *life], Remedy.MEND: ["retry"]}.get(words[0], [])
        assert [step.name for step in moves[name]] == life + again
        assert [step.after.attempts for step in moves[name]][:4] == [1, 2, 3, 4]
        waits_ms = [step.after.eligible_ms - step.at_ms for step in moves[name] if step.name == "fail"]
        assert all(before < after for before, after in pairwise(waits_ms[:3]))
        assert all(before < after for before, after in pairwise(waits_ms[3:]))
    assert set(moves) == set(drive.rounds.given), "nobody else failed"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_match_without_poison_ends_a_tick_later_than_it_would_if_there_were_none(seed: int) -> None:
    poisoned, clean = (drive_of(seed, poison_share=share, kills=False, max_hours=0.3) for share in (None, 0.0))
    ended_ms, clean_ms = (
        {step.after.job_id: step.at_ms for step in drive.sluice.ledger.steps if step.after.state is State.DONE}
        for drive in (poisoned, clean)
    )
    sound = [match for match in range(MATCHES) if not poison_places(poisoned, match)]
    late_ms = [ended_ms[job_id(match, 9)] - clean_ms[job_id(match, 9)] for match in sound]
    assert len(sound) > MATCHES / 3
    assert max(late_ms) < 60_000


# -- the tests can fail: each part of it, taken out, is noticed


def everybody_is_a_head(patch: pytest.MonkeyPatch) -> None:
    original = ordering.enter

    def enter(match: Match, job: Job) -> MatchStep:
        step = original(match, job)
        assert step.enters is not None
        return replace(step, enters=replace(step.enters, state=State.WAITING))

    patch.setattr(ordering, "enter", enter)


def nobody_is_promoted(patch: pytest.MonkeyPatch) -> None:
    original = ordering.pass_on

    def pass_on(match: Match, end: Move, ended: Job, successor: Job | None, turn: Any, *, nonce: str) -> MatchStep:
        return original(match, end, ended, successor if end.name == "finish" else None, turn, nonce=nonce)

    patch.setattr(ordering, "pass_on", pass_on)


def a_death_passes_the_turn_on(patch: pytest.MonkeyPatch) -> None:
    original = message.MessageWork.end

    def end(self: Any, move: Move, counter: str, job: Job | None = None, **how: Any) -> bool:
        if move.name != "die":
            return original(self, move, counter, job, **how)
        work = self.invocation
        dying = work.ports.ledger.read_job(move.job_id)
        end_and_pass_on(work.ports, work.settings, move, dying, nonce=work.nonce)
        return True

    patch.setattr(message.MessageWork, "end", end)


def delays_do_not_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retry, "backoff_s", lambda attempts, settings, jitter: settings.base_delay_s)


def dead_before_its_last_attempt(patch: pytest.MonkeyPatch) -> None:
    original = lifecycle.fail

    def fail(job: Job, *, reason: str, eligible_ms: int, nonce: str) -> Move:
        if job.attempts == 1:
            return lifecycle.die(job, reason=reason, now_ms=eligible_ms, nonce=nonce, attempts=2)
        return original(job, reason=reason, eligible_ms=eligible_ms, nonce=nonce)

    patch.setattr(lifecycle, "fail", fail)


def one_attempt_more(patch: pytest.MonkeyPatch) -> None:
    original = retry.own_failure

    def failure(error: Exception, job: Job, settings: ClassSettings, **given: Any) -> tuple[Move, str]:
        more = replace(settings.retry, max_attempts=settings.retry.max_attempts + 1)
        return original(error, job, replace(settings, retry=more), **given)

    patch.setattr(retry, "own_failure", failure)


@pytest.mark.parametrize(
    ("mutation", "breaks"),
    [
        (everybody_is_a_head, "I5"),
        (a_death_passes_the_turn_on, "I5"),
        (nobody_is_promoted, "I3"),  # what was behind a skipped job stays there
        (delays_do_not_grow, "I9"),
        (dead_before_its_last_attempt, "I9"),
        (one_attempt_more, "I9"),
    ],
)
def test_a_mutation_breaks_the_invariant_that_names_what_it_took_out(
    mutation: Callable[[pytest.MonkeyPatch], None], breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert breaks in drive_of(1, max_hours=2, stop_at_once=True).finish().violations
