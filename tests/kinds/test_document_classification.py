"""`document_classification`: one label per record, and nothing about the patient outside. Its logs: tests/handlers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from functions.worker.kinds.document_classification import BLANK, MAX_CHARS, MAX_RECORD_BYTES, blanked, process_chunk
from shared.domain.stats import INPUT_TOKENS, OUTPUT_TOKENS
from shared.errors import BadAnswer, BadPayload, ConfigError, ObjectMissing, SluiceError
from tests.content.records import CANARIES, LABELS, LETTER, PATIENT, record
from tests.kinds.chunks import FakeContext, a_job, run_to_end

JOB = a_job({"record_id": "rec-1"}, job_id="doc-rec-1")


def over(body: bytes, *, label: Any = "discharge_letter") -> FakeContext:
    def answers(_: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"label": label, "usage": {"input_tokens": 7, "output_tokens": 2}}

    context = FakeContext(answers=answers, options={"labels": LABELS})
    context.blobs.objects["records/rec-1"] = body
    return context


def labels_of(context: FakeContext) -> dict[str, Any]:
    return {name: json.loads(body) for name, body in context.blobs.objects.items() if name.startswith("labels/")}


def test_a_record_gets_its_label_once_whoever_asks_again() -> None:
    context = over(record())
    run_to_end(process_chunk, JOB, context, dies_at=0)
    context.answers = lambda body: {"label": "other"}  # the model changed its mind
    run_to_end(process_chunk, a_job({"record_id": "rec-1"}, job_id="doc-rec-1-again"), context)
    assert labels_of(context) == {"labels/rec-1.json": {"record_id": "rec-1", "label": "discharge_letter"}}
    assert (context.counted[INPUT_TOKENS], context.counted[OUTPUT_TOKENS]) == (14, 4)


def test_the_output_says_where_the_label_is_and_not_which_one() -> None:
    context = over(record())
    run_to_end(process_chunk, JOB, context)
    assert context.outputs() == [{"label_key": "labels/rec-1.json"}]


# -- what leaves


def test_only_the_documents_text_is_sent_and_the_patient_is_blanked_in_it() -> None:
    context = over(record())
    run_to_end(process_chunk, JOB, context)
    (body,) = context.bodies
    assert set(body) == {"instructions", "labels", "text"}
    assert body["labels"] == ["discharge_letter", "lab_report", "referral", "other"]
    about_the_patient = set(CANARIES) - {"diabetes-canary", "discharge_letter"}
    seen = body["text"].casefold()
    assert [canary for canary in about_the_patient if canary.casefold() in seen] == []
    assert "diabetes-canary" in seen, "it is what the document is about"
    assert body["text"].startswith(f"Entlassungsbrief / discharge letter\n\nWe report on Mrs. {BLANK}")


@pytest.mark.parametrize(
    ("text", "patient", "expected"),
    [
        ("Anna came. ANNA left.", {"name": "Anna"}, f"{BLANK} came. {BLANK} left."),
        ("Annabel came.", {"name": "Anna"}, "Annabel came."),  # another word
        ("Anna's pain", {"name": "Anna"}, f"{BLANK}'s pain"),
        ("Anna\n  Bell", {"name": "Anna Bell"}, BLANK),  # over a line's end, as one
        ("Bell, Anna", {"name": "Anna Bell"}, f"{BLANK}, {BLANK}"),  # in another order
        ("case 90210.", {"case": 90210}, f"case {BLANK}."),
        ("J. came", {"initial": "J"}, "J. came"),
        ("a+b (c)", {"name": "a+b (c)"}, BLANK),  # no pattern of its own
        ("Świątek", {"names": [{"family": "ŚWIĄTEK"}]}, BLANK),
        ("nothing known", {}, "nothing known"),
        ("true", {"insured": True}, "true"),
    ],
)
def test_what_the_record_holds_about_its_patient_is_blanked(text: str, patient: Any, expected: str) -> None:
    assert blanked(text, patient) == expected


def test_a_long_document_is_cut_after_it_was_blanked() -> None:
    text = "x " * (MAX_CHARS // 2 - 3) + "Hannelore " * 50
    context = over(record(text=text))
    run_to_end(process_chunk, JOB, context)
    sent = context.bodies[0]["text"]
    assert len(sent) == MAX_CHARS
    assert "Han" not in sent


# -- what fails, and says nothing


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Hannelore",
        b"[]",
        b'{"patient": {"name": "Hannelore"}}',
        b'{"patient": "Hannelore", "document": {"text": "x"}}',
        record(text=" "),
        record()[:-1],
        b"\xff" + record(),
        record(text="x" * MAX_RECORD_BYTES),
        b"[" * 100_000,
    ],
)
def test_a_record_that_cannot_be_read_is_the_jobs_failure_and_is_not_quoted(body: bytes) -> None:
    context = over(body)
    with pytest.raises(BadPayload) as raised:
        process_chunk(JOB, "", context)
    assert_silent(raised.value)
    assert context.bodies == []


@pytest.mark.parametrize("label", ["Hannelore", None, 7, ["discharge_letter"], {"a": 1}, "", "DISCHARGE_LETTER"])
def test_a_label_that_there_is_not_is_an_attempt_and_is_not_quoted(label: Any) -> None:
    context = over(record(), label=label)
    with pytest.raises(BadAnswer) as raised:
        process_chunk(JOB, "", context)
    assert_silent(raised.value)
    assert labels_of(context) == {}


def assert_silent(error: SluiceError) -> None:
    said = f"{error} {error!r} {error.__cause__}"
    assert [canary for canary in CANARIES if canary in said] == []


@pytest.mark.parametrize(
    "record_id", ["../labels/x", "a/b", "a.b", "", "Hannelore Kanarienvogel", "ä", "x" * 129, 7, None, ["a"]]
)
def test_an_id_that_could_name_something_else_is_refused_and_not_quoted(record_id: Any) -> None:
    with pytest.raises(BadPayload) as raised:
        process_chunk(a_job({"record_id": record_id}), "", over(record()))
    assert_silent(raised.value)


def test_a_record_that_is_not_there_is_told_apart() -> None:
    with pytest.raises(ObjectMissing):
        process_chunk(a_job({"record_id": "rec-2"}), "", over(record()))


@pytest.mark.parametrize("options", [{}, {"labels": ""}, {"labels": "a,,b"}])
def test_a_class_without_labels_is_told_which_option_is_missing(options: dict[str, str]) -> None:
    context = over(record())
    context.options = options
    with pytest.raises(ConfigError, match=r"options\.labels"):
        process_chunk(JOB, "", context)


def test_the_canaries_are_in_the_record() -> None:
    everything = json.dumps(PATIENT, ensure_ascii=False) + LETTER + LABELS
    assert [canary for canary in CANARIES if canary not in everything] == []
