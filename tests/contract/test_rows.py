"""Creating, reading and listing rows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shared.domain import work_index
from shared.domain.job import Created, Lane, Output, StartMark, State
from shared.domain.lifecycle import commit
from shared.domain.work_index import Nominee
from shared.errors import LedgerUnavailable
from shared.ports import Ledger
from tests.contract.jobs import a_job, queued, shown, waiting, won
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld


@pytest.mark.parametrize(
    "fields",
    (
        {},
        {"job_id": "a#b ü\n", "match_id": "?", "payload": ""},
        {"mark": StartMark(epoch=3, cursor="c"), "lane": Lane.RECOVERY, "retried": True, "epoch": 3},
        {"state": State.DEAD, "attempts": 5, "last_error": "job_failure", "transport_deaths": 2},
        {"state": State.BEHIND, "seq": 7},
        {"state": State.QUEUED, "epoch": 1, "sent_at_ms": NOW_MS, "nonce": "n", "run_id": "r", "hop": 1},
    ),
)
def test_a_row_reads_as_it_was_created(ledger: Ledger, fields: dict[str, Any]) -> None:
    job = a_job(**fields)

    assert ledger.create([job]) == [Created.CREATED]
    assert ledger.read_job(job.job_id) == job


def test_a_job_that_does_not_exist_is_none(ledger: Ledger) -> None:
    assert ledger.read_job("nobody") is None


def test_creating_answers_in_order_over_several_batches(ledger: Ledger) -> None:
    jobs = [a_job(f"job-{number}") for number in range(60)]
    ledger.create(jobs[20:30])

    answers = ledger.create(jobs)

    assert answers == [Created.CREATED] * 20 + [Created.EXISTING] * 10 + [Created.CREATED] * 30
    assert sum(len(shown(ledger, partition)) for partition in _waiting_partitions()) == 60


def test_the_same_id_twice_in_one_call_is_one_row(ledger: Ledger) -> None:
    answers = ledger.create([a_job(), a_job(), a_job(payload="{}")])

    assert answers == [Created.CREATED, Created.EXISTING, Created.DIFFERENT]


@pytest.mark.parametrize(
    ("changes", "answer"),
    (
        ({}, Created.EXISTING),
        ({"due_ms": NOW_MS + 5000, "created_ms": NOW_MS + 5000}, Created.EXISTING),  # "now", a little later
        ({"payload": "{}"}, Created.DIFFERENT),
        ({"match_id": "another"}, Created.DIFFERENT),
        ({"job_class": "thumbnail"}, Created.DIFFERENT),
        ({"priority": 1}, Created.DIFFERENT),
    ),
)
def test_an_id_that_exists_stands_as_it_is(ledger: Ledger, changes: dict[str, Any], answer: Created) -> None:
    row = queued(ledger)

    assert ledger.create([replace(a_job(), **changes)]) == [answer]
    assert ledger.read_job("job-1") == row


def test_nothing_to_create_is_no_answer(ledger: Ledger) -> None:
    assert ledger.create([]) == []


def test_outputs_come_in_byte_order_of_their_cursors(ledger: Ledger) -> None:
    cursors = ["", "10", "9", "Z", "a", "é", "\U0001f3ae"]
    job = queued(ledger)
    for cursor, following in zip(cursors, [*cursors[1:], "end"], strict=True):
        output = Output(cursor=cursor, body=f'["{cursor}"]')
        job = won(ledger.move(commit(job, next_cursor=following, output=output, nonce="worker")))

    assert [output.cursor for output in ledger.outputs("job-1")] == sorted(cursors, key=str.encode)
    assert ledger.outputs("job-1")[1] == Output(cursor="10", body='["10"]')
    assert ledger.outputs("job-2") == []


# -- the index


def test_a_count_is_half_open_and_by_partition(ledger: Ledger) -> None:
    ledger.create([a_job(eligible_ms=NOW_MS), a_job("other", eligible_ms=NOW_MS, priority=1)])
    here, now = waiting(), work_index.at(NOW_MS)

    assert ledger.count(here, low="", high="~") == 1
    assert ledger.count(here, low=now, high=work_index.at(NOW_MS + 1)) == 1
    assert ledger.count(here, low="", high=now) == 0
    assert ledger.count(here, low=work_index.at(NOW_MS + 1), high="~") == 0
    assert ledger.count(here, low="", high=work_index.position(NOW_MS, epoch=0)) == 0
    assert ledger.count(here, low=work_index.position(NOW_MS, epoch=0), high="~") == 1
    assert ledger.count(here, low="~", high="") == 0


def test_pages_resume_in_order_without_gaps_or_repeats(ledger: Ledger) -> None:
    ids = [f"job-{number}" for number in range(60)]
    mine = [job_id for job_id in ids if waiting(job_id) == waiting("job-0")]
    ledger.create([a_job(job_id, eligible_ms=NOW_MS - number) for number, job_id in enumerate(ids)])

    seen: list[Nominee] = []
    resume, pages = None, 0
    while pages == 0 or resume is not None:
        page = ledger.page(waiting("job-0"), low="", high="~", limit=4, resume=resume)
        assert len(page.nominees) <= 4
        seen += page.nominees
        resume, pages = page.resume, pages + 1

    assert [nominee.job_id for nominee in seen] == mine[::-1]
    assert pages >= len(mine) / 4
    assert {(nominee.match_id, nominee.epoch) for nominee in seen} == {(a_job().match_id, 0)}


def test_an_empty_range_is_an_empty_last_page(ledger: Ledger) -> None:
    page = ledger.page(waiting(), low=work_index.at(9), high=work_index.at(9), limit=5)

    assert (page.nominees, page.resume) == ((), None)


def test_a_count_takes_all_pages(moto_world: AwsWorld) -> None:
    jobs = [a_job(f"job-{number}", payload="x" * 4000) for number in range(40)]
    moto_world.ledger.create([job for job in jobs if waiting(job.job_id) == waiting("job-0")])
    whole = moto_world.ledger.count(waiting("job-0"), low="", high="~")
    query = moto_world.table.call

    def small_pages(operation: str, **request: Any) -> Any:
        return query(operation, **request | ({"Limit": 2} if operation == "query" else {}))

    moto_world.table.call = small_pages  # type: ignore[method-assign]

    assert whole > 4
    assert moto_world.ledger.count(waiting("job-0"), low="", high="~") == whole


# -- lost answers


@pytest.mark.parametrize(("jobs", "operation"), ((1, "put_item"), (3, "batch_execute_statement")))
def test_a_creation_whose_answer_is_lost_is_unavailable_and_then_ours(aws: AwsWorld, jobs: int, operation: str) -> None:
    rows = [a_job(f"job-{number}", nonce="submitter") for number in range(jobs)]
    with aws.answers_lost(operation), pytest.raises(LedgerUnavailable):
        aws.ledger.create(rows)

    assert aws.ledger.create(rows) == [Created.CREATED] * jobs
    assert aws.ledger.create([replace(row, nonce="another") for row in rows]) == [Created.EXISTING] * jobs


def _waiting_partitions() -> list[str]:
    return [
        work_index.waiting_partition(CLASS, priority=0, shard=shard, retried=False)
        for shard in range(work_index.SHARDS)
    ]
