"""I12 in the workers: payloads, patients, guilds, pictures; kinds that quote them; an upstream that answers oddly."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import ExifTags, Image, PngImagePlugin

from shared.domain.iso_week import first_day, week_before
from shared.domain.job import State
from shared.errors import BadAnswer, JobFailure, UpstreamFailed
from shared.kind import Chunk
from tests.content.images import encoded
from tests.content.matches import match, utc
from tests.handlers.canaries import (
    CONFIG,
    GUILD,
    OBJECT,
    PATIENT,
    PAYLOAD,
    TOKEN,
    UPSTREAM,
    Site,
    install,
    returning,
    watched,
)


@dataclass(slots=True)
class RawUpstream:
    """Answers each request with the next of these bytes, whatever a client makes of them, and hangs up."""

    answers: Sequence[bytes]
    asked: list[bytes] = field(default_factory=list)
    port: int = 0

    def serve(self, listener: socket.socket) -> None:
        for answer in self.answers:
            connection, _ = listener.accept()
            with connection:
                head, _, body = self._read(connection).partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                while len(body) < length:
                    body += connection.recv(65_536)
                self.asked.append(head + body)
                connection.sendall(answer)

    @staticmethod
    def _read(connection: socket.socket) -> bytes:
        text = b""
        while b"\r\n\r\n" not in text:
            text += connection.recv(65_536)
        return text


@contextmanager
def raw_upstream(answers: Sequence[bytes]) -> Iterator[RawUpstream]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstream = RawUpstream(answers, port=listener.getsockname()[1])
        thread = threading.Thread(target=upstream.serve, args=(listener,), daemon=True)
        thread.start()
        yield upstream
        thread.join(timeout=10)


# -- a kind of somebody else's: what it raises and returns holds its payload


def raising(error: Callable[[str], BaseException]) -> Callable[..., Chunk]:
    def process_chunk(job: Any, _cursor: str, _context: Any) -> Chunk:
        raise error(f"{job.payload} of {job.job_id} in {job.match_id}")

    return process_chunk


def chained(text: str) -> BaseException:
    error = RuntimeError("outer")
    error.__cause__ = ValueError(text)
    return error


def noted(text: str) -> BaseException:
    error = ValueError("see the note")
    error.add_note(text)
    return error


class Quoting:
    """Not JSON, and shows the payload wherever it is shown."""

    def __repr__(self) -> str:
        return PAYLOAD


CHUNKS: dict[str, tuple[Callable[..., Chunk], str]] = {
    "ValueError": (raising(ValueError), "ValueError"),
    "KeyError": (raising(KeyError), "KeyError"),
    "a cause": (raising(chained), "RuntimeError"),
    "a note": (raising(noted), "ValueError"),
    "a group": (raising(lambda text: ExceptionGroup(text, [ValueError(text)])), "ExceptionGroup"),
    "our failure with a detail": (raising(JobFailure), "job_failure"),
    "our outage with a detail": (raising(UpstreamFailed), "upstream_failed"),
    "our answer with a detail": (raising(BadAnswer), "bad_answer"),
    "no JSON": (returning(None, {"x": Quoting()}), "bad_chunk"),
    "too large": (returning(None, {"x": PAYLOAD * 20_000}), "bad_chunk"),
    "a cursor that is none": (returning([PAYLOAD], None), "bad_chunk"),
    "a cursor too long": (returning(PAYLOAD * 100, None), "bad_chunk"),
    "a cursor and an output": (returning(PAYLOAD, {"x": PAYLOAD}), ""),
    "done": (returning(None, {"x": PAYLOAD}), ""),
}


def test_a_kind_that_quotes_its_payload(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, lambda job, *rest: CHUNKS[json.loads(job.payload)["does"]][0](job, *rest))
    inline, stored = (
        [{"does": name, "note": PAYLOAD, "patient": PATIENT, "padding": "x" * size} for name in CHUNKS]
        for size in (0, 40_000)
    )
    rows = site.run("anything", *inline, *stored)
    assert [row.last_error for row in rows] == [reason for _, reason in CHUNKS.values()] * 2
    assert [bool(row.payload_key) for row in rows] == [False] * len(CHUNKS) + [True] * len(CHUNKS)


def test_a_kind_that_ends_the_process_with_its_payload(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, raising(SystemExit))
    site.submit("anything", {"note": PAYLOAD})
    site.tick("anything")
    (answer,) = site.work("anything")
    assert str(answer) == "Something failed that nobody foresaw: SystemExit"


# -- the kinds that come with it

HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
CANARY = UPSTREAM.encode("ascii")
ANSWERS = {
    "500": HEAD % b"500 Oops" + b"\r\n" + CANARY,
    "400": HEAD % b"400 Bad" + b'\r\n{"error": "' + CANARY + b'"}',
    "429": HEAD % b"429 Slow" + b"Retry-After: " + CANARY + b"\r\n\r\n" + CANARY,
    "503": HEAD % b"503 Busy" + b"Retry-After: -" + CANARY + b"\r\n\r\n",
    "a reason phrase": HEAD % (b"500 " + CANARY) + b"\r\n",
    "a redirect": HEAD % b"302 There" + b"Location: http://127.0.0.1:1/" + CANARY + b"\r\n\r\n",
    "no JSON": HEAD % b"200 OK" + b"\r\n" + CANARY,
    "another shape": HEAD % b"200 OK" + b'\r\n{"summary": "' + CANARY + b'", "label": "' + CANARY + b'"}',
    "a header that is none": HEAD % b"200 OK" + CANARY + b" no colon\r\nX: 1\r\n\r\n{}",
    "a status that is none": b"HTTP/1.1 " + CANARY + b"\r\n\r\n",
    "no gzip": HEAD % b"200 OK" + b"Content-Encoding: gzip\r\n\r\n" + CANARY,
    "cut off": HEAD % b"200 OK" + b"Content-Length: 999\r\n\r\n" + CANARY,
}


def test_an_upstream_that_answers_with_canaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], str]
) -> None:
    with raw_upstream([*ANSWERS.values(), *ANSWERS.values()]) as upstream:
        config = CONFIG.replace("127.0.0.1:1/", f"127.0.0.1:{upstream.port}/")
        with watched(config, tmp_path, monkeypatch, said) as site:
            site.put(OBJECT, f"1. e4 {PAYLOAD}\n".encode())
            record = {"patient": {"name": PATIENT}, "document": {"text": PAYLOAD}}
            site.put("records/r-1", json.dumps(record).encode())
            replays = site.run("replay_summary", *[{"replay_key": OBJECT}] * len(ANSWERS))
            records = site.run("document_classification", *[{"record_id": "r-1"}] * len(ANSWERS))
    codes = {"upstream_failed", "upstream_rejected", "refused", "held", "bad_answer"}
    assert {row.last_error for row in replays} == {row.last_error for row in records} == codes
    assert len(upstream.asked) == 2 * len(ANSWERS)
    assert any(PAYLOAD.encode() in request for request in upstream.asked)


def test_screenshots_with_words_in_them_and_in_their_names(site: Site) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Artist] = PATIENT
    exif[ExifTags.Base.ImageDescription] = PAYLOAD
    exif[ExifTags.Base.Orientation] = 6
    words = PngImagePlugin.PngInfo()
    words.add_text("Comment", PAYLOAD)
    words.add_itxt("Author", PATIENT)
    picture = Image.new("RGB", (400, 200), "green")
    site.put(OBJECT, encoded(picture, "JPEG", exif=exif, comment=PAYLOAD.encode()))
    site.put(f"{OBJECT}.png", encoded(picture, "PNG", pnginfo=words, exif=exif))
    site.put(f"{OBJECT}.tif", encoded(picture, "TIFF", tiffinfo={270: PAYLOAD, 315: PATIENT}))
    site.put(f"{OBJECT}.txt", PAYLOAD.encode())
    keys = [OBJECT, f"{OBJECT}.png", f"{OBJECT}.tif", f"{OBJECT}.txt", f"{OBJECT}.gone"]
    (row,) = site.run("screenshot_thumbnails", {"screenshots": keys, "note": PAYLOAD})
    assert row.state is State.DONE
    assert sum(key.endswith(".png") for key in site.world.objects("thumbnails/")) >= 2


def test_a_guild_of_canaries(site: Site) -> None:
    week = week_before(site.host.ports.clock.now_ms())
    monday = first_day(week)
    site.aws.dynamodb.create_table(
        TableName="game-matches",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "guild_id", "KeyType": "HASH"}, {"AttributeName": "ended", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("guild_id", "ended")],
    )
    played = utc(monday.year, monday.month, monday.day)
    people = {PATIENT: {"N": "7"}, PAYLOAD: {"S": UPSTREAM}}
    item = match(GUILD, 1, played, map={"S": PAYLOAD}, result={"S": PAYLOAD}, players={"M": people})
    site.aws.dynamodb.put_item(TableName="game-matches", Item=item)
    payloads = [{"guild_id": GUILD, "week": week}, {"guild_id": GUILD, "week": PAYLOAD}, {"guild_id": [GUILD]}]
    rows = site.run("guild_weekly_report", *payloads)
    assert rows[0].state is State.DONE
    assert [row.last_error for row in rows[1:]] == ["bad_payload", "bad_payload"]
    site.aws.dynamodb.delete_table(TableName="game-matches")
    assert [row.last_error for row in site.run("guild_weekly_report", payloads[0])] == ["ResourceNotFoundException"]


def test_a_sweep_over_sessions_of_canaries(site: Site) -> None:
    key = [{"AttributeName": "session_id", "KeyType": "HASH"}]
    site.aws.dynamodb.create_table(
        TableName="game-sessions",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=key,
        AttributeDefinitions=[{"AttributeName": "session_id", "AttributeType": "S"}],
    )
    session = {"session_id": {"S": TOKEN}, "expires_s": {"N": "1"}, "player": {"S": PATIENT}}
    site.aws.dynamodb.put_item(TableName="game-sessions", Item=session)
    done, failed = site.run("session_sweep", {"note": PAYLOAD}, {"expired_before_s": PAYLOAD})
    assert (done.state, failed.last_error) == (State.DONE, "bad_payload")
