"""The demo's story as numbers: its configuration, what waits when the outage ends, and what arrives afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ops.local.replays import Replay, make_replay, match_replays
from shared.core.model import NewJob

JOB_CLASS: Final = "replay_summary"
UPSTREAM: Final = "inference"

LIMIT_PER_S: Final = 10.0
LATENCY_MS: Final = 250
BATCH_SIZE: Final = 10
FUNCTION_TIMEOUT_S: Final = 15

CONFIG: Final = f"""\
# The demo's sluice.toml: one class, as in the project's own, with an invocation that is short enough to run out.
[sluice]
pacer_timeout_s = 40

[upstreams.{UPSTREAM}]
endpoint = "@ENDPOINT@"
limit_per_s = {LIMIT_PER_S}
timeout_s = 5.0

[classes.{JOB_CLASS}]
kind = "replay_summary"
upstream = "{UPSTREAM}"
tick_interval_s = 60
live_window_s = 300
live_share = 0.3
slots = 20
batch_size = {BATCH_SIZE}
function_timeout_s = {FUNCTION_TIMEOUT_S}
chunk_margin_s = 5.0
declared_calls_per_job = 2.0
declared_service_s = 2.0
declared_chunk_s = 1.0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """How much of everything. The defaults are what `make demo` shows; tests take less."""

    seed: int = 7
    matches: int = 101
    games: int = 6
    long_jobs: int = 3
    long_bytes: int = 140_000
    """About 70 segments of 0.25 s and more: too long for one invocation, even with the upstream to itself."""
    outage_s: int = 2_400
    fresh_matches: int = 12
    fresh_every_s: float = 8.0

    def backlog(self) -> list[Replay]:
        """What piled up during the outage, oldest first. The long ones ended together, early in it."""
        games = [
            replay for number in range(self.matches) for replay in match_replays(self.seed, number, games=self.games)
        ]
        long = [
            make_replay(self.seed, number, self.games, min_bytes=self.long_bytes)
            for number in range(self.matches // 3, self.matches // 3 + self.long_jobs)
        ]
        at = len(games) // 8
        return games[:at] + long + games[at:]

    def fresh(self) -> Iterator[list[Replay]]:
        """The matches that end during the drain, one after the other."""
        for number in range(self.matches, self.matches + self.fresh_matches):
            yield list(match_replays(self.seed, number, games=2))


def config_text(endpoint: str) -> str:
    return CONFIG.replace("@ENDPOINT@", endpoint)


def new_jobs(replays: Sequence[Replay], *, first_due_ms: int, last_due_ms: int, seed: int) -> list[NewJob]:
    """The replays' jobs, due between the two times in the replays' order, at moments that look like arrivals."""
    chance = random.Random(seed)
    due_ms = sorted(chance.randint(first_due_ms, last_due_ms) for _ in replays)
    return [
        NewJob(job_id=replay.job_id, job_class=JOB_CLASS, match_id=replay.match_id, payload=replay.payload, due_ms=due)
        for replay, due in zip(replays, due_ms, strict=True)
    ]
