"""The demo's story as numbers: its configuration, what waits when the outage ends, and what arrives afterwards.

What waits are replays: PGN-like records of matches, the same for the same seed. The moves look like chess and are not
checked to be legal, as nobody downstream plays them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from shared.domain.job import NewJob

SHORT_BYTES: Final = (900, 2_600)
"""One or two segments of 2 KB."""

FILES, RANKS, PIECES = "abcdefgh", "12345678", "NBRQK"

TEAMS: Final = (
    ("Köln", "1. FC"), ("Malmö", "Åse"), ("São Paulo", "Grêmio"), ("Łódź", "Kraków"), ("Ōsaka", "京都"),
    ("İzmir", "Ağrı"), ("Αθήνα", "Πάτρα"), ("Київ", "Львів"), ("Reykjavík", "Þór"), ("Brno", "Plzeň"), ("Oslo", "Bodø"),
)  # fmt: skip

ROUNDS: Final = (
    "Vorrunde 2026/27", "Achtelfinale 2026/27 (Hinspiel)", "Achtelfinale 2026/27 (Rückspiel)", "Viertelfinale 2026/27",
    "Halbfinale 2026/27 (Hinspiel)", "Halbfinale 2026/27 (Rückspiel)", "Spiel um Platz 3", "Finale 2026/27",
    "Freundschaftsspiel", "Relegation",
)  # fmt: skip

PLAYERS: Final = ("Jürgen Weiß", "Zoë Ångström", "Đorđe Petrović", "Anaïs Lefèvre", "Ying 王", "Noa Ó Briain")

OPENINGS: Final = ("A06", "B12", "B90", "C42", "C93", "D37", "E60")


@dataclass(frozen=True, slots=True)
class Replay:
    """One game of a match: the blob, where it goes, and the job that summarises it."""

    job_id: str
    match_id: str
    text: str

    @property
    def key(self) -> str:
        return f"replays/{self.job_id}.pgn"

    @property
    def body(self) -> bytes:
        return self.text.encode()

    @property
    def payload(self) -> str:
        return json.dumps({"replay_key": self.key})


def match_name(number: int) -> str:
    """A match's title, not ASCII and often one character from its neighbour's; distinct for every number."""
    teams, series = TEAMS[number % len(TEAMS)], number // len(TEAMS)
    edition = f" · {series // len(ROUNDS) + 1}" if series >= len(ROUNDS) else ""
    return f"{teams[0]} vs. {teams[1]} – {ROUNDS[series % len(ROUNDS)]}{edition}"


def match_replays(seed: int, number: int, *, games: int) -> Iterator[Replay]:
    """The games of one match, each its own job. A match's replays depend on the seed and its number alone."""
    for game in range(games):
        yield make_replay(seed, number, game, min_bytes=random.Random(f"{seed}/{number}/{game}").randint(*SHORT_BYTES))


def make_replay(seed: int, number: int, game: int, *, min_bytes: int) -> Replay:
    """One replay of at least `min_bytes`, and at most one more game than that takes."""
    chance = random.Random(f"{seed}/{number}/{game}/moves")
    lines: list[str] = []
    size = 0
    while size < min_bytes:
        added = [""] if lines else []
        added += _game(chance, match_name(number), f"{number + 1}.{game + 1}", most_bytes=min_bytes - size)
        size += sum(len(line.encode()) + 1 for line in added)
        lines += added
    return Replay(job_id=f"m{number:04d}-g{game:02d}", match_id=match_name(number), text="\n".join(lines) + "\n")


def _game(chance: random.Random, event: str, number: str, *, most_bytes: int) -> Iterator[str]:
    white, black = chance.sample(PLAYERS, 2)
    result = chance.choice(("1-0", "0-1", "1/2-1/2"))
    moves = max(12, min(chance.randint(40, 120), most_bytes // 40))
    tags = {"Event": event, "Site": "?", "Date": "2026.??.??", "Round": number, "White": white, "Black": black}
    tags |= {"Result": result, "ECO": chance.choice(OPENINGS), "PlyCount": str(2 * moves)}
    yield from (f'[{name} "{value}"]' for name, value in tags.items())
    yield ""
    clocks = [5400.0, 5400.0]
    words: list[str] = []
    for move in range(1, moves + 1):
        words.append(f"{move}.")
        for side in (0, 1):
            clocks[side] = max(1.0, clocks[side] - chance.uniform(2, 110))
            words += [_san(chance), f"{{[%clk {_clock(clocks[side])}]}}"]
        if move % 2 == 0 and move < moves:
            yield " ".join(words)
            words = []
    # Not on a line of its own: cut off there, it would be the same segment in thousands of replays.
    yield " ".join([*words, result])


def _san(chance: random.Random) -> str:
    target = chance.choice(FILES) + chance.choice(RANKS)
    roll = chance.random()
    if roll < 0.03:
        return chance.choice(("O-O", "O-O-O"))
    if roll < 0.4:
        return target if roll < 0.33 else f"{chance.choice(FILES)}x{target}"
    capture, check = "x" * (chance.random() < 0.2), "+" * (chance.random() < 0.08)
    return f"{chance.choice(PIECES)}{capture}{target}{check}"


def _clock(left_s: float) -> str:
    return f"{int(left_s) // 3600}:{int(left_s) // 60 % 60:02d}:{int(left_s) % 60:02d}"


def segment_count(body: bytes, limit: int) -> int:
    """How many pieces of whole lines, at most `limit` bytes each, a blob makes, by another way than the kind's."""
    count, room = 0, 0
    for line in body.splitlines(keepends=True):
        if len(line) > room:
            count, room = count + 1, limit
        room -= len(line)
    return count


JOB_CLASS: Final = "replay_summary"
UPSTREAM: Final = "inference"
LIMIT_PER_S: Final = 10.0
LATENCY_MS: Final = 250
BATCH_SIZE: Final = 10
FUNCTION_TIMEOUT_S: Final = 15
"""The one class and its upstream: a drain of minutes, with an invocation short enough for long jobs to outlast it."""

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


class Scenario(Struct, frozen=True, kw_only=True):
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
