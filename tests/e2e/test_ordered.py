"""Ordered matches on the emulator: missing replays hold their matches until an operator gives a word by `ops`.

Workers are killed at every ninth chunk meanwhile. What ran in which order is what the upstream was asked, and when.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import pytest

from ops.local.emulator import ROOT, Emulator
from ops.local.processes import scrubbed_environment
from ops.local.scenario import make_replay
from shared.domain.job import State
from tests.e2e.kinds_site import Site, open_site

pytestmark = pytest.mark.e2e

CLASS = "replay_summary"
MATCHES, JOBS = 12, 5
RETRIED, REPLACED, SKIPPED = (1, 1), (7, 0), ((4, 2), (10, 3))
MISSING = (RETRIED, REPLACED, *SKIPPED)
"""(match, place) of the jobs whose replay was not uploaded."""
HELD = sum(JOBS - 1 - place for _, place in MISSING)
EVERY = 9
GIVE_UP_S = 600.0


def config_text(upstream: str) -> str:
    return f"""
[sluice]
pacer_timeout_s = 40

[upstreams.summaries]
endpoint = "{upstream}/v1/summarise"
limit_per_s = 8.0
timeout_s = 3.0

[classes.{CLASS}]
kind = "replay_summary"
upstream = "summaries"
ordered = true
function_timeout_s = 10
chunk_margin_s = 2.0
retry = {{max_attempts = 2, base_delay_s = 5.0, max_crashes = 20}}
"""


@pytest.fixture(scope="module")
def site(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(emulator, tmp_path_factory.mktemp("ordered"), text=config_text, every=EVERY) as site:
        yield site


def job_id(match: int, place: int) -> str:
    return f"m{match:02d}-{place}"


@dataclass(frozen=True, slots=True)
class Operator:
    """What a person sees and types."""

    site: Site

    def upload(self, name: str, number: int) -> None:
        body = make_replay(7, number, 0, min_bytes=2_500).body
        self.site.client("s3").put_object(Bucket=self.site.stage.bucket, Key=f"replays/{name}", Body=body)

    def ops(self, *arguments: str, given: str | None = None, code: int = 0) -> str:
        emulator = self.site.stage.emulator
        config, outputs = self.site.directory / "sluice.toml", emulator.tmp / "outputs.json"
        found = subprocess.run(
            [sys.executable, "-m", "ops", "--config", str(config), "--outputs", str(outputs), *arguments],
            cwd=ROOT,
            env=scrubbed_environment(HOME=str(emulator.tmp), **emulator.environment()),
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert found.returncode == code, found.stderr
        return found.stdout or found.stderr

    def dead(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ops("dead", "list", CLASS, "--json"))["dead"]
        return found

    def wait_for(self, settled: Callable[[Counter[State]], bool]) -> Counter[State]:
        until_s, ticked_s = time.monotonic() + GIVE_UP_S, 0.0
        while True:
            if time.monotonic() - ticked_s > 20:
                ticked_s = time.monotonic()
                self.site.tick(CLASS)
            states = Counter(job.state for job in self.site.jobs())
            if settled(states):
                return states
            assert time.monotonic() < until_s, states
            time.sleep(1)

    def asked(self) -> dict[str, list[str]]:
        """Match -> its jobs in the order in which the upstream was first asked for each of their chunks; a job stands
        twice where another's chunk came between two of its own."""
        keys = self.site.stage.upstream.report(with_keys=True)["keys"]
        oldest_first = sorted(keys, key=lambda key: -keys[key]["age_s"])
        jobs = [key.split(":")[0] for key in oldest_first]
        return {
            match: [job for job, _ in groupby(each for each in jobs if each.startswith(match))]
            for match in sorted({job.split("-")[0] for job in jobs})
        }


@pytest.fixture
def operator(site: Site) -> Operator:
    return Operator(site)


def test_a_missing_replay_holds_what_is_behind_it_and_everything_else_drains(operator: Operator) -> None:
    lines = []
    for place in range(JOBS):
        for match in range(MATCHES):
            name = job_id(match, place)
            if (match, place) not in MISSING:
                operator.upload(name, match * JOBS + place)
            payload = {"replay_key": f"replays/{name}"}
            lines.append(json.dumps({"job_id": name, "match_id": f"match {match}", "payload": payload}))
    jobs = operator.site.directory / "jobs.jsonl"
    jobs.write_text("\n".join(lines))
    assert f"{len(lines)} created" in operator.ops("submit", str(jobs), "--job-class", CLASS)

    states = operator.wait_for(lambda states: states[State.WAITING] + states[State.QUEUED] == 0)
    done = MATCHES * JOBS - len(MISSING) - HELD
    assert states == {State.DONE: done, State.DEAD: len(MISSING), State.BEHIND: HELD}
    dead = dict(MISSING)
    begun = {match: [job_id(match, place) for place in range(dead.get(match, JOBS))] for match in range(MATCHES)}
    assert operator.asked() == {f"m{match:02d}": names for match, names in begun.items() if names}
    assert len(operator.site.objects("summaries/")) == done
    assert {row["job_id"]: (row["reason"], row["attempts"], row["holds"]) for row in operator.dead()} == {
        job_id(match, place): ("object_missing", 2, JOBS - 1 - place) for match, place in MISSING
    }
    shown = operator.ops("dead", "show", job_id(*RETRIED))
    print(shown)
    assert "object_missing" in shown
    assert f"3 jobs behind it, the next is {job_id(1, 2)}" in shown


def test_after_a_word_on_each_all_goes_on_in_order(operator: Operator) -> None:
    operator.upload(job_id(*RETRIED), 100)
    print(operator.ops("retry", job_id(*RETRIED), "--reason", "the replay was uploaded after all"))
    operator.upload("mended", 101)
    other = json.dumps({"job_id": f"{job_id(*REPLACED)}-b", "payload": {"replay_key": "replays/mended"}})
    print(operator.ops("replace", job_id(*REPLACED), "-", "--reason", "it has another name", given=other))
    for given_up in SKIPPED:
        print(operator.ops("skip", job_id(*given_up), "--reason", "the guild was deleted"))
    assert "not dead but skipped" in operator.ops("retry", job_id(*SKIPPED[0]), "--reason", "no", code=2)

    ended = {State.DONE, State.SKIPPED, State.REPLACED}
    states = operator.wait_for(lambda states: set(states) <= ended)
    assert states == {State.DONE: MATCHES * JOBS - 2, State.SKIPPED: 2, State.REPLACED: 1}
    assert operator.dead() == []
    instead: dict[str, list[str]] = {job_id(*each): [] for each in SKIPPED}
    instead[job_id(*REPLACED)] = [f"{job_id(*REPLACED)}-b"]
    expected: dict[str, list[str]] = {f"m{match:02d}": [] for match in range(MATCHES)}
    for match, place in product(range(MATCHES), range(JOBS)):
        name = job_id(match, place)
        expected[f"m{match:02d}"] += instead.get(name, [name])
    asked, line = operator.asked(), operator.site.deaths.line(CLASS)
    print("\n".join(f"{match}: {', '.join(order)}" for match, order in asked.items()))
    print(f"{line}: {line.count('K')} killed of {len(line)} chunks that ran")
    assert asked == expected
    assert len(operator.site.objects("summaries/")) == MATCHES * JOBS - 2
    assert line.count("K") >= 10
