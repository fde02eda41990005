"""What a submitted job must be, whoever submits it: `submit_jobs` is the producers' way in and has the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.simulator.sluice_world import SimSluice
from shared.domain.job import NewJob
from shared.domain.settings import ClassSettings, Settings
from shared.errors import InvalidInput
from shared.submit.submission import WAVE_BYTES, WAVE_ROWS, Refusal, submit_jobs, waves
from shared.submit.validation import new_row

SETTINGS = Settings(classes={"replays": ClassSettings(name="replays", kind="sim")})
GOOD: dict[str, Any] = {"job_id": "j", "job_class": "replays", "match_id": "m", "payload": "{}"}


def job(**changes: Any) -> NewJob:
    return NewJob(**(GOOD | changes))


def refusal_of(**changes: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        new_row(job(**changes), SETTINGS, now_ms=1)
    return str(refused.value)


def test_4096_bytes_stay_in_the_row_and_4097_go_to_the_object_store() -> None:
    inline = new_row(job(payload=f'"{"ä" * 2047}"'), SETTINGS, now_ms=1)
    large = new_row(job(payload=f'"{"ä" * 2047}" '), SETTINGS, now_ms=1)

    assert (inline.body, inline.job.payload_key) == (None, "")
    assert large.body is not None
    assert (len(large.body), large.job.payload) == (4097, "")
    assert large.job.payload_key.startswith("payloads/")


def test_one_mebibyte_is_the_most() -> None:
    assert new_row(job(payload=f'"{"x" * 1_048_574}"'), SETTINGS, now_ms=1).body is not None
    assert refusal_of(payload=f'"{"x" * 1_048_575}"') == "payload: got 1048577 bytes, expected at most 1048576"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [  # what only a producer's code can hand in: a line of a file has these types or is refused before
        ({"job_id": 7}, "job_id: got a whole number, expected a string of 1 to 1024 bytes of UTF-8"),
        ({"match_id": None}, "match_id: got null, expected a string of 1 to 1024 bytes of UTF-8"),
        ({"job_class": ["replays"]}, "job_class: got an array, expected one of replays"),
        ({"payload": {"n": 1}}, "payload: got an object, expected JSON text"),
        ({"payload": b"{}"}, "payload: got a bytes, expected JSON text"),
        ({"payload": ""}, "payload: got text that is not JSON, expected a JSON value"),
        ({"payload": '"\ud800"'}, "payload: got a string with a lone surrogate, expected well-formed Unicode"),
        ({"due_ms": 1.5}, "due: got a number, expected whole milliseconds since 1970, UTC"),
        ({"due_ms": float("nan")}, "due: got a number, expected whole milliseconds since 1970, UTC"),
        ({"due_ms": -1}, "due: got a time out of range, expected a time from 1970 to 2100"),
        ({"priority": "0"}, "priority: got a string, expected a whole number from 0 to 0"),
    ],
)
def test_a_wrong_type_is_a_sentence_too(changes: dict[str, Any], sentence: str) -> None:
    assert refusal_of(**changes) == sentence


def test_producers_get_a_report_and_no_exception() -> None:
    sluice = SimSluice(SETTINGS, seed=1)

    def jobs() -> Iterator[NewJob]:
        yield job()
        yield job(job_id="\0")
        yield job(payload='{"n": 2}')
        yield job()
        yield job(job_id="k")

    report = submit_jobs(sluice.ports, SETTINGS, jobs(), nonce="once")

    assert (report.created, report.existing) == (2, 1)
    assert report.refused == [
        Refusal(
            position=1,
            field="job_id",
            reason="job_id: got a string with a NUL character, expected text without one",
        ),
        Refusal(
            position=2,
            field="job_id",
            reason="job_id: got an id that exists with other contents, expected a new id",
        ),
    ]


def test_waves_are_cut_by_rows_by_bytes_and_before_a_repeated_id() -> None:
    def sizes(new: list[NewJob]) -> list[int]:
        rows = [(place, new_row(one, SETTINGS, now_ms=1)) for place, one in enumerate(new)]
        return [len(wave) for wave in waves(rows)]

    mebibyte = f'"{"x" * 1_048_574}"'
    assert sizes([job(job_id=f"j{n}") for n in range(WAVE_ROWS + 1)]) == [WAVE_ROWS, 1]
    assert sizes([job(job_id=f"j{n}", payload=mebibyte) for n in range(20)]) == [WAVE_BYTES // 1_048_576, 4]
    assert sizes([job(job_id=name) for name in "abaab"]) == [2, 1, 2]


def test_an_ordered_match_keeps_the_order_of_its_submission() -> None:
    ordered = Settings(classes={"replays": ClassSettings(name="replays", kind="sim", ordered=True)})
    sluice = SimSluice(ordered, seed=1)
    report = submit_jobs(sluice.ports, ordered, [job(job_id=f"j{n}", match_id=f"m{n % 3}") for n in range(30)])

    assert (report.created, report.refused) == (30, [])
    assert [sluice.rows[f"j{n}"].seq for n in range(0, 30, 3)] == list(range(1, 11))


ANY_TEXT = st.characters(exclude_categories=())  # lone surrogates too


@given(st.text(ANY_TEXT, max_size=1100))
def test_any_well_formed_id_up_to_1024_bytes_is_admitted_and_every_other_one_refused_by_name(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    well_formed = not any("\ud800" <= character <= "\udfff" for character in text)
    if 1 <= size <= 1024 and well_formed and "\0" not in text:
        assert new_row(job(job_id=text, match_id=text), SETTINGS, now_ms=1).job.job_id == text
    else:
        assert refusal_of(job_id=text).startswith("job_id: got ")
        assert refusal_of(match_id=text).startswith("match_id: got ")
