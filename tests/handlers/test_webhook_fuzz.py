"""Anything at all as an event: never a 5xx, never a run without the exact token, never two of one minute, never a leak.

20,000 examples and more: half of them are events that API Gateway could hand over, half of them are damaged ones.
"""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from functions.webhook import handler as entry
from shared.core.runs import RunKey
from tests.handlers.webhook_world import CLASS, OLD_TOKEN, SCHEDULED, SHUT, TOKEN, Gate, body_of

quick = settings(
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

CANARY: Final = "canary-payload-5d0c"
STATUSES: Final = {202, 400, 401, 405, 409, 413, 415}

tokens = st.sampled_from(
    [TOKEN, TOKEN, TOKEN, OLD_TOKEN, TOKEN[:-1], f"{TOKEN}x", f" {TOKEN}", TOKEN.upper(), "", "schlüssel" * 4, "\ud800"]
)
schemes = st.sampled_from(["Bearer ", "Bearer ", "bearer ", "BEARER  ", "Basic ", "", "Bearer", "Bearer\t"])
minutes = st.sampled_from(["12:05", "12:05", "12:04", "12:03", "12:06", "11:59"])
classes = st.sampled_from([CLASS, CLASS, SCHEDULED, SHUT, CANARY, ""])
values: SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just([CANARY]), st.just({CANARY: 1})
)


@st.composite
def bodies(draw: Any) -> str | bytes | None:
    """A right body, or one with a word, a byte or a value that is not."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.one_of(st.none(), st.binary(max_size=200), st.text(max_size=200)))
    fields: dict[str, Any] = body_of(draw(minutes), job_class=draw(classes))
    if kind == 1:
        fields[draw(st.sampled_from([*fields, CANARY]))] = draw(values)
    if kind == 2:
        del fields[draw(st.sampled_from(list(fields)))]
    text = json.dumps(fields)
    if kind == 3:
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(st.sampled_from(["NaN", "[" * 500, "9" * 5000, CANARY, "\x00", "é", '"', " " * 4096]))
            + text[at:]
        )
    if kind == 4:
        return text.encode(draw(st.sampled_from(["utf-8", "utf-16", "utf-32", "utf-8-sig"])))
    return text


def cased(name: str) -> SearchStrategy[str]:
    return st.sampled_from([name, name.title(), name.upper(), name.capitalize()])


@st.composite
def headers(draw: Any) -> list[tuple[str, str]]:
    found = [(draw(cased("authorization")), draw(schemes) + draw(tokens))]
    types = ["application/json"] * 4 + ["application/json; charset=utf-8", "text/plain", CANARY, ""]
    found.append((draw(cased("content-type")), draw(st.sampled_from(types))))
    if draw(st.integers(0, 7)) == 0:  # repeated
        found.append((draw(cased("authorization")), draw(schemes) + draw(tokens)))
    if draw(st.integers(0, 7)) == 0:
        found.append((CANARY, draw(st.text(max_size=10))))
    if draw(st.integers(0, 15)) == 0:
        del found[draw(st.integers(0, len(found) - 1))]
    return found


@st.composite
def gateway_events(draw: Any) -> dict[str, Any]:
    """As API Gateway writes them, in either payload format, base64 or not."""
    body, sent = draw(bodies()), draw(headers())
    method = draw(st.sampled_from(["POST"] * 8 + ["GET", "post", CANARY]))
    if isinstance(body, bytes) or (body is not None and body.isascii() and draw(st.booleans())):
        raw = body if isinstance(body, bytes) else body.encode()
        body, encoded = base64.b64encode(raw).decode(), True
    else:
        encoded = False
    event: dict[str, Any] = {"body": body, "isBase64Encoded": encoded}
    if draw(st.booleans()):
        joined: dict[str, str] = {}
        for name, value in sent:
            joined[name.lower()] = f"{joined[name.lower()]},{value}" if name.lower() in joined else value
        return event | {"version": "2.0", "headers": joined, "requestContext": {"http": {"method": method}}}
    several: dict[str, list[str]] = {}
    for name, value in sent:
        several.setdefault(name, []).append(value)
    last = {name: each[-1] for name, each in several.items()}
    return event | {"version": "1.0", "httpMethod": method, "headers": last, "multiValueHeaders": several}


names = st.sampled_from(
    [
        "headers",
        "multiValueHeaders",
        "body",
        "isBase64Encoded",
        "requestContext",
        "http",
        "method",
        "httpMethod",
        CANARY,
    ]
)
junk: SearchStrategy[Any] = st.recursive(
    st.one_of(values, st.binary(max_size=8), st.sampled_from(["POST", f"Bearer {TOKEN}", "application/json"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def damaged_events(draw: Any) -> Any:
    """What no gateway writes: a part of the event is something else."""
    event = draw(gateway_events())
    if draw(st.integers(0, 4)) == 0:
        return draw(junk)
    event[draw(names)] = draw(junk)
    return event


class Watched:
    """The handler with everything it prints, at DEBUG, over all examples."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.accepted = 0
        self.examples = 0

    def ask(self, event: Any) -> None:
        self.examples += 1
        before = len(self.gate.runs)
        with _everything_printed() as out:
            answer = self.gate.ask(event)
        assert answer.status in STATUSES, answer
        assert CANARY not in json.dumps(answer.body)
        printed = out.getvalue()
        assert "canary" not in printed
        assert (len(self.gate.runs) > before) == (answer.body.get("created") is True)
        if answer.status == 202:
            self.accepted += 1
            assert _carries_a_right_token(event)
            assert answer.body["run_id"] in {run.key.run_id for run in self.gate.runs}
        if self.examples % 50 == 0:
            self.gate.ledger = _emptied(self.gate)


@contextmanager
def _everything_printed() -> Iterator[io.StringIO]:
    """Standard output, standard error and every logger at DEBUG: what libraries would say counts as well."""
    root, out = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers, root.level
    root.handlers, root.level = [logging.StreamHandler(out)], logging.DEBUG
    try:
        with redirect_stdout(out), redirect_stderr(out):
            yield out
    finally:
        root.handlers, root.level = handlers, level


def _emptied(gate: Gate) -> Any:
    """Forget the runs now and then, or after a few examples nothing would ever be created again."""
    assert len({run.key for run in gate.runs}) == len(gate.runs) <= 8
    assert all(run.key == RunKey.of(run.key.job_class, run.key.minute_ms) for run in gate.runs)
    fresh = Gate(clock=gate.clock, secrets=gate.secrets)
    gate.restart(fresh.door.ports)
    return fresh.ledger


def _carries_a_right_token(event: Any) -> bool:
    """Said once more in other words: one authorization header, and it is exactly the scheme and a stored secret."""
    single = {key: [value] for key, value in (event.get("headers") or {}).items()}
    several = event.get("multiValueHeaders") or {}
    source = several if any(str(key).lower() == "authorization" for key in several) else single
    found = [value for key, each in source.items() if str(key).lower() == "authorization" for value in each]
    scheme, _, token = found[0].partition(" ")
    return len(found) == 1 and scheme.lower() == "bearer" and token.strip() in (TOKEN, OLD_TOKEN)


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")
        gate = Gate()
        patch.setattr(entry, "door", lambda: gate.door)
        found = Watched(gate)
        yield found
    print(f"webhook fuzz: {found.examples} examples, {found.accepted} accepted")
    assert found.examples >= 20_000
    assert found.accepted >= 1_000  # or it would prove little


@settings(quick, max_examples=12_000)
@given(event=gateway_events())
def test_whatever_a_gateway_hands_over(watched: Watched, event: Any) -> None:
    watched.ask(event)


@settings(quick, max_examples=8_500)
@given(event=damaged_events())
def test_whatever_no_gateway_would_hand_over(watched: Watched, event: Any) -> None:
    watched.ask(event)
