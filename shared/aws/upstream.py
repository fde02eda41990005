"""The `Upstream`: one POST of JSON, or one call of Amazon Bedrock's Converse. A kind notices no difference.

Neither retries: a retry would spend a permit that nobody reserved (I7).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from typing import Any, Final

import urllib3
from botocore import exceptions as sdk
from botocore.exceptions import ClientError

from shared.aws.clients import Clients, code_of, status_of
from shared.domain.settings import Consequence, UpstreamApi, UpstreamSettings
from shared.errors import BadAnswer, QuotaExhausted, Refused, UpstreamFailed, UpstreamHeld, UpstreamRejected
from shared.ports import Clock, Upstream
from shared.worker.retry import parse_retry_after

_CONNECT_S: Final = 2.0
"""An upstream that takes longer to accept a connection is not there."""

_POOL: Final = 32
"""Connections that are kept open for calls from parallel threads."""

_PIECE: Final = 65_536
"""Bytes read at a time: the time that is left is looked at between two pieces."""

_MOST_BYTES: Final = 6 * 1024 * 1024
"""The largest answer that is read: Lambda's own bound of a request or response."""

_LONGEST_KEY: Final = 255
"""The longest idempotency key that is sent as it is."""


class HttpUpstream:
    """Timeouts are explicit; a body that arrives drop by drop does not outlast them either (fact F26)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pool = urllib3.PoolManager(maxsize=_POOL, retries=False)

    def call(
        self, upstream: UpstreamSettings, body: Mapping[str, Any], *, idempotency_key: str, timeout_s: float
    ) -> Mapping[str, Any]:
        if timeout_s <= 0:
            raise UpstreamFailed("no time left")
        request = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Idempotency-Key": header_key(idempotency_key),
        }
        status, retry_after, answer = self._post(upstream.endpoint, request, headers, timeout_s)
        wait_s = parse_retry_after(retry_after, now_ms=self._clock.now_ms())
        raise_for(upstream, status, wait_s)
        return _parsed(answer)

    def _post(
        self, url: str, request: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, str | None, bytes]:
        until_s = time.monotonic() + timeout_s
        timeout = urllib3.Timeout(connect=min(_CONNECT_S, timeout_s), read=timeout_s)
        try:
            response = self._pool.request(
                "POST", url, body=request, headers=headers, timeout=timeout, redirect=False, preload_content=False
            )
            try:
                answer = _read(response, until_s)
            except BaseException:
                response.close()  # half-read: the connection must not serve another call
                raise
            response.release_conn()
            return response.status, response.headers.get("Retry-After"), answer
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UpstreamFailed(type(error).__name__) from error


class Upstreams:
    """Each upstream by the API that its settings name."""

    def __init__(self, by_api: Mapping[UpstreamApi, Upstream]) -> None:
        self._by_api = by_api

    def call(
        self, upstream: UpstreamSettings, body: Mapping[str, Any], *, idempotency_key: str, timeout_s: float
    ) -> Mapping[str, Any]:
        speaker = self._by_api[upstream.api]
        return speaker.call(upstream, body, idempotency_key=idempotency_key, timeout_s=timeout_s)


def _read(response: urllib3.BaseHTTPResponse, until_s: float) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise UpstreamFailed("answer too large")
        if time.monotonic() > until_s:
            raise UpstreamFailed("timeout")
    return b"".join(pieces)


def raise_for(upstream: UpstreamSettings, status: int, wait_s: float | None) -> None:
    """What a status means: by the upstream's own table, then by its hundreds. Returns where it means success."""
    if 200 <= status < 300:
        return
    match upstream.errors.get(status):
        case Consequence.REFUSE:
            raise Refused(wait_s)
        case Consequence.HOLD:
            raise UpstreamHeld(wait_s)
        case Consequence.EXHAUSTED:
            raise QuotaExhausted(str(status))
        case Consequence.REJECT:
            raise UpstreamRejected(str(status))
    if 400 <= status < 500:
        raise UpstreamRejected(str(status))
    raise UpstreamFailed(str(status))


def _parsed(answer: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        raise UpstreamFailed("answer is not JSON") from None
    if not isinstance(parsed, dict):
        raise UpstreamFailed("answer is not an object")
    return parsed


def header_key(key: str) -> str:
    """The key itself where a header can carry it, else its hash: job ids and cursors may be any text."""
    if len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable() and key == key.strip():
        return key
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


INSTRUCTIONS: Final = "instructions"
"""The field of a kind's body that becomes the system prompt."""

_LEAST_S: Final = 1
"""The shortest timeout: they are whole seconds."""

_METADATA: Final = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}")
"""What Converse accepts as a value of a request's metadata."""

_NOT_READY: Final = "ModelNotReadyException"
"""The model is being loaded: a wait, not a failure."""

_MODEL_FAILED: Final = frozenset({"ModelErrorException", "ModelTimeoutException"})
"""Sent with statuses in the four hundreds, which would make them the job's own failure."""


class ConverseUpstream:
    """One attempt a call, with the call's own timeout in whole seconds: a client is made once for each.

    What a kind's body says under `instructions` becomes the model's system prompt, the rest of it the message. Converse
    has no idempotency (fact F57): the key travels as metadata of the request, where the account's invocation log shows
    it. A call that is repeated after a crash is paid for twice, and is committed once.
    """

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    def call(
        self, upstream: UpstreamSettings, body: Mapping[str, Any], *, idempotency_key: str, timeout_s: float
    ) -> Mapping[str, Any]:
        if timeout_s < _LEAST_S:
            raise UpstreamFailed("no time left")
        client = self._clients.inference(timeout_s=int(timeout_s))
        try:
            answer = client.converse(**request_of(upstream, body, idempotency_key=idempotency_key))
        except ClientError as error:
            self._raise_for(upstream, error)
            raise UpstreamFailed(code_of(error)) from error
        except (sdk.ConnectionError, sdk.HTTPClientError, sdk.IncompleteReadError) as error:
            raise UpstreamFailed(type(error).__name__) from error
        return answer_of(answer)

    def _raise_for(self, upstream: UpstreamSettings, error: ClientError) -> None:
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        wait_s = parse_retry_after(headers.get("retry-after"), now_ms=self._clock.now_ms())
        if code_of(error) in _MODEL_FAILED:
            raise UpstreamFailed(code_of(error)) from error
        if code_of(error) == _NOT_READY:
            raise UpstreamHeld(wait_s) from error
        raise_for(upstream, status_of(error), wait_s)


def request_of(upstream: UpstreamSettings, body: Mapping[str, Any], *, idempotency_key: str) -> dict[str, Any]:
    content = json.dumps({name: value for name, value in body.items() if name != INSTRUCTIONS}, ensure_ascii=False)
    request: dict[str, Any] = {
        "modelId": upstream.model,
        "messages": [{"role": "user", "content": [{"text": content}]}],
        "inferenceConfig": {"maxTokens": upstream.max_tokens},
        "requestMetadata": {"idempotency-key": _metadata(idempotency_key)},
    }
    if INSTRUCTIONS in body:
        request["system"] = [{"text": body[INSTRUCTIONS]}]
    return request


def answer_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object in the model's text, with its `usage`. `BadAnswer` where there is none: asking again is an attempt.

    Models like to put a fence or a word of politeness around what they were asked for.
    """
    try:
        text = "".join(part.get("text", "") for part in answer["output"]["message"]["content"])
        parsed = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise BadAnswer(f"stop reason: {answer.get('stopReason')}") from None
    usage = answer.get("usage", {})
    tokens = {"input_tokens": usage.get("inputTokens", 0), "output_tokens": usage.get("outputTokens", 0)}
    return {**parsed, "usage": tokens}


def _metadata(key: str) -> str:
    return key if _METADATA.fullmatch(key) else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
