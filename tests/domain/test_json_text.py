"""Strict JSON: what is taken, what is not, and that no text makes the check raise."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.json_text import MAX_DEPTH, json_fault


@pytest.mark.parametrize(
    "text", ["1", "null", '"x"', "[]", '{"a": {"b": [1.5, true]}}', "[" * 100 + "]" * 100, "1e308"]
)
def test_strict_json_is_json(text: str) -> None:
    assert json_fault(text) is None


@pytest.mark.parametrize("text", ["", "{", "nan", "'x'", "[1,]", "\ufeff1", "1 2", "[" * (MAX_DEPTH + 1), "\0"])
def test_other_text_is_not(text: str) -> None:
    assert json_fault(text) is not None


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_no_text_makes_the_json_check_raise_and_what_passes_is_readable(text: str) -> None:
    if json_fault(text) is None:
        json.loads(text)
