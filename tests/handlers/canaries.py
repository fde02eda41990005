"""Words that must not be seen, the disguises that a leak wears, and a world in which every handler meets them."""

from __future__ import annotations

import base64
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import quote, quote_plus

import pytest

from functions.pacer.handler import handler as pacer
from functions.worker.handler import handler as worker
from functions.worker.kinds import guild_weekly_report, session_sweep
from shared.aws import wiring
from shared.domain.control import RunKey
from shared.domain.job import Job, Lane, NewJob
from shared.kind import Chunk
from shared.submit.submission import submit_jobs
from tests.content.records import LABELS
from tests.handlers.deployment import Context, Deployment, deployed, record_of
from tests.handlers.webhook_world import event_of

PAYLOAD: Final = "canary-payload-Wörter-5d0c"
PATIENT: Final = "Hannelore Kanarienvogel-Świątek"
GUILD: Final = "Die Kanari-Gilde <Ω>"
TOKEN: Final = "canary-token-4f1c9be277ab01dd"
OBJECT: Final = "shots/canary-object 17/größe.png"
MATCH: Final = "canary-match Köln vs. Halbfinale"
JOB: Final = "canary-job-8842/ü"
UPSTREAM: Final = "canary-upstream-answer-91"
CANARIES: Final = (PAYLOAD, PATIENT, GUILD, TOKEN, OBJECT, MATCH, JOB, UPSTREAM)


CONFIG = f"""
[upstreams.model]
endpoint = "http://127.0.0.1:1/"
limit_per_s = 400

[classes.anything]
kind = "canary"

[classes.replay_summary]
kind = "replay_summary"
upstream = "model"
upstream_share = 0.5
webhook = true

[classes.document_classification]
kind = "document_classification"
upstream = "model"
upstream_share = 0.5
options.labels = "{LABELS}"

[classes.screenshot_thumbnails]
kind = "screenshot_thumbnails"

[classes.guild_weekly_report]
kind = "guild_weekly_report"
options.matches_table = "game-matches"

[classes.session_sweep]
kind = "session_sweep"
options.sessions_table = "game-sessions"

[producers.match_ended]
replay_class = "replay_summary"
screenshot_class = "screenshot_thumbnails"

[producers.guild_reports]
job_class = "guild_weekly_report"
guilds_table = "game-guilds"

[producers.session_sweep]
job_class = "session_sweep"
"""


def disguises(word: str) -> Iterator[str]:
    """The word as a log could hold it: as it is, escaped, quoted for a URL, in hex, in base64 at each offset."""
    raw = word.encode()
    yield word
    yield json.dumps(word)[1:-1]
    yield json.dumps(json.dumps(word))[3:-3]
    yield ascii(word)[1:-1]
    yield repr(raw)[2:-1]
    yield raw.decode("latin-1")
    yield quote(word)
    yield quote(word, safe="")
    yield quote_plus(word)
    yield raw.hex()
    for offset in range(3):
        # Whole groups of four characters only: the first and the last ones depend on the neighbours.
        encoded = base64.b64encode(b"\0" * offset + raw)
        yield encoded[4 if offset else 0 : -4].decode()


def leaks(text: str) -> list[str]:
    """Each canary that the text holds in whatever form."""
    folded = text.casefold()
    return [word for word in CANARIES if any(form in text or form.casefold() in folded for form in disguises(word))]


@dataclass(slots=True, kw_only=True)
class Site:
    """One deployment on moto, with queues for each class. What a handler answers or raises counts as printed."""

    world: Deployment
    host: wiring.Host
    urls: Mapping[str, Mapping[str, str]]
    calls: int = 0
    submitted: int = 0

    @property
    def aws(self) -> Any:
        return self.world.aws.clients

    def call(self, handler: Callable[[Any, Any], Any], event: Any) -> Any:
        """As Lambda calls, and stricter: it prints no causes. An error's text goes back to the invoker as well."""
        self.calls += 1
        try:
            answer = handler(event, Context())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as Lambda does
            print("".join(traceback.format_exception(error)))
            return error
        print(json.dumps(answer, ensure_ascii=False))
        return answer

    def put(self, key: str, body: bytes) -> None:
        self.world.put(key, body)

    def submit(self, job_class: str, *payloads: Any) -> list[str]:
        """A job per payload; their ids, each of them a canary."""
        jobs = []
        for payload in payloads:
            self.submitted += 1
            name, text = f"/{self.submitted}", json.dumps(payload, ensure_ascii=False)
            jobs.append(NewJob(job_id=JOB + name, job_class=job_class, match_id=MATCH + name, payload=text))
        assert submit_jobs(self.host.ports, self.host.settings, jobs).created == len(jobs)
        return [job.job_id for job in jobs]

    def tick(self, job_class: str) -> Any:
        """Of a minute that none of the class has had."""
        event = {"job_class": job_class, "scheduled_at": f"2026-11-30T12:{self.calls % 60:02d}:00Z"}
        return self.call(pacer, event)

    def records(self, job_class: str) -> list[dict[str, Any]]:
        """What the event source mapping would hand over."""
        return [record for url in self.urls[job_class].values() for record in self._received(url)]

    def work(self, job_class: str) -> list[Any]:
        return [self.call(worker, {"Records": [record]}) for record in self.records(job_class)]

    def run(self, job_class: str, *payloads: Any) -> list[Job]:
        """Submit, tick, work; the rows afterwards."""
        ids = self.submit(job_class, *payloads)
        self.tick(job_class)
        assert len(self.work(job_class)) == len(ids)
        return [self.world.job(each) for each in ids]

    def _received(self, url: str) -> Iterator[dict[str, Any]]:
        ask = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"]}
        while messages := self.aws.sqs.receive_message(**ask).get("Messages"):
            for message in messages:
                yield record_of(message, url)


@contextmanager
def open_site(config: str, directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Site]:
    """`config` is the text of a sluice.toml. Handlers find this deployment in their environment."""
    caches = (guild_weekly_report._matches, session_sweep._sessions, wiring.webhook, wiring.host)
    with deployed(config, directory, patch) as world:
        sqs = world.aws.clients.sqs
        urls = {
            name: {
                lane.value: sqs.create_queue(QueueName=f"{name}-{lane}.fifo", Attributes={"FifoQueue": "true"})[
                    "QueueUrl"
                ]
                for lane in Lane
            }
            for name in world.host.settings.classes
        }
        patch.setenv("SLUICE_QUEUES", json.dumps(urls))
        patch.setenv("SLUICE_SECRET", "the-secret")
        patch.setenv("SLUICE_PACER", "the-pacer")
        patch.setenv("POWERTOOLS_METRICS_NAMESPACE", "SluiceTest")
        for cache in caches:
            cache.cache_clear()
        host = wiring.host()
        host.ports.parallel._threads = 1  # type: ignore[attr-defined]  # moto is not thread-safe (fact F34)
        yield Site(world=world, host=host, urls=urls)
        for cache in caches:
            cache.cache_clear()


@contextmanager
def watched(config: str, directory: Path, patch: pytest.MonkeyPatch, said: Callable[[], str]) -> Iterator[Site]:
    with open_site(config, directory, patch) as opened:
        yield opened
        assert opened.calls, "no handler was called"
        assert leaks(said()) == []


# -- what several tests hand over


def match_event(**changes: Any) -> dict[str, Any]:
    detail = {"match_id": MATCH, "replays": [OBJECT], "screenshots": [f"{OBJECT}/1"], "note": PAYLOAD}
    return {"detail-type": "match.ended", "time": "2026-11-30T12:00:00Z", "detail": {**detail, **changes}}


def asked(site: Site) -> Any:
    key = RunKey.of("replay_summary", site.host.ports.clock.now_ms())
    minute = key.run_id.partition("@")[2]
    body = {"run_id": key.run_id, "scheduled_at": minute.replace("Z", ":00Z"), "job_class": key.job_class}
    return event_of(body, token=TOKEN)


def returning(cursor: Any, output: Any) -> Callable[..., Chunk]:
    """The second chunk, if the first one's cursor was good, is the last."""
    return lambda _job, before, _context: Chunk(next_cursor=None if before else cursor, output=output)


def install(patch: pytest.MonkeyPatch, process_chunk: Callable[..., Chunk]) -> None:
    kind = ModuleType("canary")
    kind.__dict__.update(calls_per_chunk=0, process_chunk=process_chunk)
    patch.setitem(sys.modules, "functions.worker.kinds.canary", kind)
