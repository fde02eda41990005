"""Anything at all as an event: never a 5xx, never a run without the exact token, never two of one minute, never a leak.

20,000 examples and more: half of them are events that API Gateway could hand over, half of them are damaged ones.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shared.domain.control import RunKey
from tests.handlers.test_webhook_secret import AwayLedger
from tests.handlers.webhook_world import CLASS, OLD_TOKEN, SCHEDULED, SHUT, TOKEN, Gate, body_of, enter

quick = settings(
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

CANARY: Final = "canary-payload-5d0c"
STATUSES: Final = {202, 400, 401, 405, 409, 413, 415}

TOKENS: Final = (TOKEN, OLD_TOKEN, TOKEN[:-1], f"{TOKEN}x", f" {TOKEN}", TOKEN.upper(), "", "schlüssel" * 4, "\ud800")
SCHEMES: Final = ("Bearer ", "bearer ", "BEARER  ", "Basic ", "", "Bearer", "Bearer\t")
TYPES: Final = ("application/json", "application/json; charset=utf-8", "text/plain", CANARY, "")
MINUTES: Final = ("12:05", "12:04", "12:03", "12:06", "11:59")
CLASSES: Final = (CLASS, SCHEDULED, SHUT, CANARY, "")
VALUES: Final = (None, True, 0, -1, 1.5, float("nan"), "", CANARY, [CANARY], {CANARY: 1}, 10**30)
INSERTS: Final = ("NaN", "[" * 500, "9" * 5000, CANARY, "\x00", "é", '"', " " * 4096, "\ud800")
ENCODINGS: Final = ("utf-8", "utf-16", "utf-32", "utf-8-sig", "latin-1")


class Writer:
    """Writes events from one number: for 20,000 of them, drawing every word on its own would take minutes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def mostly(self, right: Any, others: Sequence[Any], *, of: int = 9) -> Any:
        return right if self.chance.randrange(of) else self.chance.choice(others)

    def body(self) -> str | bytes | None:
        """A right body, or one with a word, a byte or a value that is not."""
        fields: dict[str, Any] = body_of(self.mostly("12:05", MINUTES), job_class=self.mostly(CLASS, CLASSES))
        kind = self.chance.randrange(16)
        if kind == 0:
            return self.chance.choice([None, "", self.chance.randbytes(self.chance.randrange(200)), "null", "{}"])
        if kind == 1:
            fields[self.chance.choice([*fields, CANARY])] = self.chance.choice(VALUES)
        if kind == 2:
            del fields[self.chance.choice(list(fields))]
        text = json.dumps(fields)
        if kind == 3:
            at = self.chance.randrange(len(text) + 1)
            text = text[:at] + self.chance.choice(INSERTS) + text[at:]
        if kind == 4:
            return text.encode(self.chance.choice(ENCODINGS))
        return text

    def headers(self) -> list[tuple[str, str]]:
        found = [(self.cased("authorization"), self.mostly("Bearer ", SCHEMES) + self.mostly(TOKEN, TOKENS, of=4))]
        found.append((self.cased("content-type"), self.mostly("application/json", TYPES)))
        if not self.chance.randrange(10):  # repeated
            found.append((self.cased("authorization"), "Bearer " + self.chance.choice(TOKENS)))
        if not self.chance.randrange(10):
            found.append((CANARY, CANARY))
        if not self.chance.randrange(20):
            del found[self.chance.randrange(len(found))]
        return found

    def cased(self, name: str) -> str:
        return self.chance.choice([name, name.title(), name.upper(), name.capitalize()])

    def event(self) -> dict[str, Any]:
        """As API Gateway writes them, in either payload format, base64 or not."""
        body, sent, method = self.body(), self.headers(), self.mostly("POST", ["GET", "post", CANARY], of=14)
        encoded = isinstance(body, bytes) or (body is not None and body.isascii() and self.chance.random() < 0.5)
        if encoded:
            body = base64.b64encode(body if isinstance(body, bytes) else str(body).encode()).decode()
        event: dict[str, Any] = {"body": body, "isBase64Encoded": encoded}
        several: dict[str, list[str]] = {}
        if self.chance.random() < 0.5:
            for name, value in sent:
                several.setdefault(name.lower(), []).append(value)
            joined = {name: ",".join(each) for name, each in several.items()}
            return event | {"version": "2.0", "headers": joined, "requestContext": {"http": {"method": method}}}
        for name, value in sent:
            several.setdefault(name, []).append(value)
        last = {name: each[-1] for name, each in several.items()}
        return event | {"version": "1.0", "httpMethod": method, "headers": last, "multiValueHeaders": several}


gateway_events = st.integers(0, 2**63).map(lambda seed: Writer(seed).event())

values: SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just([CANARY]), st.just({CANARY: 1})
)
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


def damaged(event: dict[str, Any], part: str, other: Any) -> Any:
    """What no gateway writes: a part of the event is something else, or all of it."""
    return other if part == CANARY and not isinstance(other, dict) else {**event, part: other}


damaged_events = st.builds(damaged, gateway_events, names, junk)


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
    gate.restart(fresh.webhook.ports)
    return fresh.ledger


def _carries_a_right_token(event: Any) -> bool:
    """Said once more in other words: one authorization header, and it is exactly the scheme and a stored secret."""
    for part in (event.get("multiValueHeaders"), event.get("headers")):
        named = (
            [value for key, value in part.items() if str(key).lower() == "authorization"]
            if isinstance(part, dict)
            else []
        )
        found = [each for value in named for each in (value if isinstance(value, list) else [value])]
        if found:
            scheme, _, token = found[0].partition(" ")
            return len(found) == 1 and scheme.lower() == "bearer" and token.strip() in (TOKEN, OLD_TOKEN)
    return False


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")
        gate = Gate()
        enter(patch, gate)
        found = Watched(gate)
        yield found
    print(f"webhook fuzz: {found.examples} examples, {found.accepted} accepted")
    assert found.examples >= 20_000
    assert found.accepted >= 1_000  # or it would prove little


@pytest.mark.slow
@settings(quick, max_examples=12_000)
@given(event=gateway_events)
def test_whatever_a_gateway_hands_over(watched: Watched, event: Any) -> None:
    watched.ask(event)


@pytest.mark.slow
@settings(quick, max_examples=8_500)
@given(event=damaged_events)
def test_whatever_no_gateway_would_hand_over(watched: Watched, event: Any) -> None:
    watched.ask(event)


AWAY: Final[Mapping[str, Callable[[Gate], None]]] = {
    "secret_unavailable": lambda gate: setattr(gate.secrets, "up", False),
    "secret_unusable": lambda gate: setattr(gate.secrets, "current", b"short"),
    "ledger_unavailable": lambda gate: gate.broken(ledger=AwayLedger()),
}


@settings(quick, max_examples=1_000)
@given(event=gateway_events, part=st.sampled_from(sorted(AWAY)))
def test_whatever_comes_while_a_part_is_away(event: Any, part: str) -> None:
    """The stated 503s, and nothing else that is new; never a run, and never a word of the caller's."""
    gate = Gate()
    AWAY[part](gate)
    with pytest.MonkeyPatch.context() as patch, _everything_printed() as out:
        enter(patch, gate)
        answer = gate.ask(event)
    assert answer.status in STATUSES - {202} or (answer.status, answer.reason) == (503, part)
    assert gate.runs == []
    assert "canary" not in out.getvalue() + json.dumps(answer.body)
