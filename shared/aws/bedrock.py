"""The `Upstream` as Amazon Bedrock's Converse. A kind notices no difference: an object of JSON in, an object out.

What a kind's body says under `instructions` becomes the model's system prompt, the rest of it the message. Converse has
no idempotency: the key travels as metadata of the request, where the account's invocation log shows it. A call that is
repeated after a crash is paid for twice, and is committed once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from botocore import exceptions as sdk
from botocore.exceptions import ClientError

from shared.aws.clients import Clients, code_of, status_of
from shared.aws.upstream import raise_for
from shared.core.retry import parse_retry_after
from shared.core.settings import UpstreamSettings
from shared.errors import BadAnswer, UpstreamFailed, UpstreamHeld
from shared.ports import Clock

INSTRUCTIONS: Final = "instructions"

_LEAST_S: Final = 1
_METADATA: Final = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}")
_NOT_READY: Final = "ModelNotReadyException"
_MODEL_FAILED: Final = frozenset({"ModelErrorException", "ModelTimeoutException"})
"""Sent with statuses in the four hundreds, which would make them the job's own failure."""


class ConverseUpstream:
    """One attempt a call, with the call's own timeout in whole seconds: a client is made once for each."""

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
