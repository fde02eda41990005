"""Whatever is typed into `sluice.toml`, `parse_settings` returns settings or one ConfigError of readable lines."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.domain import keys
from shared.domain.configuration import parse_settings
from shared.domain.keys import ABORT, CLASS, GENERAL, MATCH_ENDED, PRODUCERS, RETRY, UPSTREAM, WEBHOOK
from shared.errors import ConfigError

SCALARS = (
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=50)
    | st.sampled_from(["inference", "replay_summary", "429", "hold", "https://a.example", 10**400, -1, 0.5, math.nan])
)
SECTIONS = (GENERAL, WEBHOOK, UPSTREAM, CLASS, RETRY, ABORT, PRODUCERS, MATCH_ENDED)
KEYS = st.sampled_from(
    ["a", *keys.DOCUMENT, *(name for section in SECTIONS for name in (*section.keys, *section.inner))]
) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=6)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "sluice": TABLES | VALUES,
        "upstreams": st.dictionaries(KEYS, TABLES | VALUES, max_size=3) | VALUES,
        "classes": st.dictionaries(KEYS, TABLES | VALUES, max_size=3) | VALUES,
        "webhook": TABLES | VALUES,
        "producers": st.dictionaries(KEYS, TABLES | VALUES, max_size=3) | VALUES,
    },
)


def toml(value: Any) -> str:
    """Any value as inline TOML. JSON's escapes are TOML's too, but for surrogate pairs and the two infinities."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(part) for part in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(char):08x}" for char in value if not 0xD800 <= ord(char) < 0xE000) + '"'
    if isinstance(value, int) and not isinstance(value, bool) and value > 10**300:
        return hex(value)
    return json.dumps(value) if not isinstance(value, float) else repr(value)


@given(st.text() | st.text(alphabet='[]{}=."\\\n #abc019-:T'))
def test_arbitrary_text_raises_nothing_but_config_errors(text: str) -> None:
    only_config_errors(text)


@given(DOCUMENTS)
def test_arbitrary_values_raise_nothing_but_config_errors(document: dict[str, Any]) -> None:
    only_config_errors("\n".join(f"{toml(key)} = {toml(value)}" for key, value in document.items()))


def only_config_errors(text: str) -> None:
    try:
        classes, faults = len(parse_settings(text).classes), []
    except ConfigError as error:
        classes, faults = 0, error.faults
    assert bool(classes) is not bool(faults)
    assert all(fault.isprintable() and 0 < len(fault) < 400 for fault in faults)
