"""The upstream as Bedrock's Converse: botocore's own bytes against a server that answers as Bedrock does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

import pytest

from shared.aws.clients import Clients
from shared.aws.runtime import SystemClock
from shared.aws.upstream import ConverseUpstream, HttpUpstream, Upstreams
from shared.domain.settings import Consequence, UpstreamApi, UpstreamSettings
from shared.errors import (
    BadAnswer,
    QuotaExhausted,
    Refused,
    SluiceError,
    UpstreamFailed,
    UpstreamHeld,
    UpstreamRejected,
)
from tests.contract.listening import serving
from tests.contract.worlds import aws_client

MODEL = "eu.example.model-v1:0"


@dataclass(slots=True)
class Bedrock:
    endpoint: str = ""
    text: str = '{"summary": {"results": ["1-0"]}}'
    stop: str = "end_turn"
    error: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    requests: list[tuple[str, Any]] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        if self.error:
            return {"message": "patient-4711 said no"}
        return {
            "output": {"message": {"role": "assistant", "content": [{"text": self.text}]}},
            "stopReason": self.stop,
            "usage": {"inputTokens": 30, "outputTokens": 12, "totalTokens": 42},
            "metrics": {"latencyMs": 5},
        }


@pytest.fixture
def bedrock() -> Iterator[Bedrock]:
    state = Bedrock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.requests.append((unquote(self.path), json.loads(body)))
            time.sleep(state.wait_s)
            answer = json.dumps(state.answer()).encode()
            self.send_response(state.status)
            headers = {"x-amzn-ErrorType": state.error} if state.error else {}
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(answer))} | state.headers
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        state.endpoint = url
        yield state


SETTINGS = UpstreamSettings(name="u", api=UpstreamApi.CONVERSE, model=MODEL, max_tokens=77, limit_per_s=1)


def call(
    bedrock: Bedrock, body: Any = None, *, key: str = "job:0:0", timeout_s: float = 5.0, settings: Any = SETTINGS
) -> Any:
    clients = Clients(aws_client(bedrock.endpoint))
    upstreams = Upstreams(
        {UpstreamApi.HTTP: HttpUpstream(SystemClock()), UpstreamApi.CONVERSE: ConverseUpstream(clients, SystemClock())}
    )
    return upstreams.call(settings, body or {"text": "ö"}, idempotency_key=key, timeout_s=timeout_s)


def test_a_body_becomes_a_message_and_its_instructions_the_system_prompt(bedrock: Bedrock) -> None:
    answer = call(bedrock, {"text": "1. e4 ö", "segment": 3, "instructions": "Summarise."})
    assert answer == {"summary": {"results": ["1-0"]}, "usage": {"input_tokens": 30, "output_tokens": 12}}
    ((path, request),) = bedrock.requests
    assert path == f"/model/{MODEL}/converse"
    assert request["system"] == [{"text": "Summarise."}]
    ((message),) = request["messages"]
    assert (message["role"], json.loads(message["content"][0]["text"])) == ("user", {"text": "1. e4 ö", "segment": 3})
    assert request["inferenceConfig"] == {"maxTokens": 77}
    assert request["requestMetadata"] == {"idempotency-key": "job:0:0"}


@pytest.mark.parametrize("key", ["Köln:0:0", "a~b", "x" * 300])
def test_a_key_that_no_metadata_can_carry_is_hashed(bedrock: Bedrock, key: str) -> None:
    call(bedrock, key=key)
    sent = bedrock.requests[0][1]["requestMetadata"]["idempotency-key"]
    assert (len(sent), sent.isalnum()) == (64, True)


@pytest.mark.parametrize(
    "text", ['```json\n{"label": "a"}\n```', 'Of course!\n{"label": "a"}', '{"label": "a"}\nAnything else?']
)
def test_what_a_model_puts_around_its_object_is_ignored(bedrock: Bedrock, text: str) -> None:
    bedrock.text = text
    assert call(bedrock)["label"] == "a"


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("", "content_filtered"),
        ("I cannot help with that.", "end_turn"),
        ('{"summary": {"results": [', "max_tokens"),
        ("}{", "end_turn"),
        ('{"a": ' + "[" * 100_000 + "}", "end_turn"),
    ],
)
def test_an_answer_without_an_object_is_an_attempt_of_the_job(bedrock: Bedrock, text: str, stop: str) -> None:
    bedrock.text, bedrock.stop = text, stop
    with pytest.raises(BadAnswer) as raised:
        call(bedrock)
    assert str(raised.value).endswith(f"stop reason: {stop}")
    assert "cannot help" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("ThrottlingException", 429, Refused),
        ("ModelNotReadyException", 429, UpstreamHeld),
        ("ServiceUnavailableException", 503, UpstreamHeld),
        ("ModelTimeoutException", 408, UpstreamFailed),  # in the four hundreds, and not the job's fault
        ("ModelErrorException", 424, UpstreamFailed),
        ("InternalServerException", 500, UpstreamFailed),
        ("ValidationException", 400, UpstreamRejected),
        ("AccessDeniedException", 403, QuotaExhausted),  # by this upstream's own table
    ],
)
def test_an_error_has_its_consequence_and_is_never_tried_again(
    bedrock: Bedrock, code: str, status: int, error: type[SluiceError]
) -> None:
    bedrock.error, bedrock.status, bedrock.headers = code, status, {"Retry-After": "7"}
    errors = {**SETTINGS.errors, 403: Consequence.EXHAUSTED}
    settings = UpstreamSettings(name="u", api=UpstreamApi.CONVERSE, model=MODEL, limit_per_s=1, errors=errors)
    with pytest.raises(SluiceError) as raised:
        call(bedrock, settings=settings)
    assert type(raised.value) is error
    assert "4711" not in str(raised.value)
    assert len(bedrock.requests) == 1
    if isinstance(raised.value, Refused):
        assert raised.value.retry_after_s == 7.0


def test_a_model_that_thinks_too_long_is_left_in_time(bedrock: Bedrock) -> None:
    bedrock.wait_s = 2.0
    began_s = time.monotonic()
    with pytest.raises(UpstreamFailed):
        call(bedrock, timeout_s=1.4)
    assert time.monotonic() - began_s < 1.9
    with pytest.raises(UpstreamFailed, match="no time left"):
        call(bedrock, timeout_s=0.9)
    assert len(bedrock.requests) == 1


def test_a_bedrock_that_is_not_there_is_a_failure(bedrock: Bedrock) -> None:
    bedrock.endpoint = "http://127.0.0.1:1"
    with pytest.raises(UpstreamFailed):
        call(bedrock)
