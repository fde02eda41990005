"""What SQS accepts: 10 entries, 262,144 bytes, and group ids that keep distinct matches distinct (facts F3, F5)."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.messages import HASHED_PREFIX, MAX_BYTES, batches, group_id


def utf8_bytes(text: str) -> int:
    return len(text.encode())


def test_25_small_entries_are_batches_of_10_10_and_5() -> None:
    made = batches(range(25), size=lambda _: 100)
    assert [len(batch) for batch in made] == [10, 10, 5]
    assert [entry for batch in made for entry in batch] == list(range(25))


def test_nothing_to_send_is_no_batch() -> None:
    assert batches([], size=utf8_bytes) == []


def test_bytes_are_counted_as_utf_8() -> None:
    umlauts = "ü" * (MAX_BYTES // 4)  # half of the limit in bytes, a quarter in characters
    assert [len(batch) for batch in batches([umlauts, umlauts, "x"], size=utf8_bytes)] == [2, 1]


def test_an_entry_above_the_limit_travels_alone() -> None:
    assert batches(["a", "b" * (MAX_BYTES + 1), "c"], size=utf8_bytes) == [["a"], ["b" * (MAX_BYTES + 1)], ["c"]]


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 300_000) | st.integers(0, 1000), max_size=60))
def test_batches_keep_the_order_and_the_limits_and_close_only_when_full(sizes: list[int]) -> None:
    made = batches(sizes, size=lambda entry: entry)
    assert [entry for batch in made for entry in batch] == sizes
    for batch in made:
        assert 1 <= len(batch) <= 10
        assert sum(batch) <= MAX_BYTES or len(batch) == 1
    for batch, following in pairwise(made):
        assert len(batch) == 10 or sum(batch) + following[0] > MAX_BYTES


@pytest.mark.parametrize(
    "match_id", ["m", "1997.05.11-DeepBlue_Kasparov/6", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "x" * 128]
)
def test_an_id_that_sqs_accepts_is_its_own_group(match_id: str) -> None:
    assert group_id(match_id) == match_id


@pytest.mark.parametrize(
    "match_id",
    [
        "",
        "two words",
        "line\n",
        "line\r",
        "tab\t",
        "x" * 129,
        "Köln vs. 1. FC – Halbfinale 2026/27 (Rückspiel)",
        "\x7f",
        "１２",  # full-width digits
        "\ud800",
        "nul\0",
        HASHED_PREFIX,
        group_id("two words"),
    ],
)
def test_an_id_that_sqs_would_refuse_is_hashed(match_id: str) -> None:
    group = group_id(match_id)
    assert group != match_id
    assert group.startswith(HASHED_PREFIX)
    assert len(group) == len(HASHED_PREFIX) + 64


TWINS = ["Köln 1", "Köln 1 ", " Köln 1", "Koln 1", "KÖLN 1", "Köln 1\n", "Köln\N{NO-BREAK SPACE}1", "Köln 1"]


def test_near_twins_stay_distinct() -> None:
    twins = {*TWINS, *(unicodedata.normalize("NFD", twin) for twin in TWINS)}
    groups = {group_id(twin) for twin in twins} | {group_id(group_id(twin)) for twin in twins}
    assert len(groups) == 2 * len(twins)


ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=140)  # lone surrogates too
TWIN_EDITS = st.sampled_from(["", " ", "\n", "\0", "e\u0301", "é", "\ud83d", "x"])


@settings(deadline=None)
@given(stem=ANY_TEXT, one=TWIN_EDITS, two=TWIN_EDITS, hashed=st.booleans())
def test_distinct_matches_have_distinct_groups_and_sqs_accepts_them(
    stem: str, one: str, two: str, hashed: bool
) -> None:
    first, second = stem + one, stem + two
    if hashed:
        second = group_id(second)
    assert (group_id(first) == group_id(second)) == (first == second)
    for group in (group_id(first), group_id(second)):
        assert 1 <= len(group) <= 128
        assert all("!" <= letter <= "~" for letter in group)
