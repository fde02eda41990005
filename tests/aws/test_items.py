"""Values as items: what a version of Sluice wrote before, this one reads, and what it writes is written as before.

A deployment upgrades in the middle of a drain: the items below are from the version with a hand-written codec.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from shared.aws.items import encode, item_of_job, job_of_item, load, stored
from shared.domain.control import Carry, Control, Run, RunState
from shared.domain.job import Flag, Job, Lane, StartMark, State
from tests.contract.jobs import a_job
from tests.contract.runs import CLOSE, KEY, RATE, STAGE

FLAG = Flag(by="ops@example", why="poison – once", at_ms=1_796_040_000_000)
FLAG_ITEM = {"M": {"by": {"S": "ops@example"}, "why": {"S": "poison – once"}, "at_ms": {"N": "1796040000000"}}}

JOB = Job(
    job_id="j#1",
    job_class="replay",
    match_id="Köln",
    payload='{"a": 1}',
    due_ms=1_796_040_000_000,
    priority=1,
    state=State.QUEUED,
    cursor="c1",
    epoch=3,
    copy=1,
    nonce="n",
    lane=Lane.RECOVERY,
    retried=True,
    sent_at_ms=1_796_040_001_000,
    run_id=KEY.run_id,
    mark=StartMark(epoch=3, cursor="c1", copy=1, receives=2),
    crashes=1,
    changed=FLAG,
)
JOB_ITEM: dict[str, dict[str, Any]] = {
    "pk": {"S": "JOB#j#1"},
    "sk": {"S": "JOB"},
    "job_class": {"S": "replay"},
    "match_id": {"S": "Köln"},
    "payload": {"S": '{"a": 1}'},
    "due_ms": {"N": "1796040000000"},
    "payload_key": {"S": ""},
    "priority": {"N": "1"},
    "state": {"S": "queued"},
    "cursor": {"S": "c1"},
    "epoch": {"N": "3"},
    "copy": {"N": "1"},
    "nonce": {"S": "n"},
    "lane": {"S": "recovery"},
    "eligible_ms": {"N": "0"},
    "retried": {"BOOL": True},
    "sent_at_ms": {"N": "1796040001000"},
    "run_id": {"S": "replay@2026-11-30T12:00Z"},
    "hand_until_ms": {"N": "0"},
    "hop": {"N": "0"},
    "attempts": {"N": "0"},
    "mark": {"M": {"epoch": {"N": "3"}, "cursor": {"S": "c1"}, "copy": {"N": "1"}, "receives": {"N": "2"}}},
    "crashes": {"N": "1"},
    "transport_deaths": {"N": "0"},
    "last_error": {"S": ""},
    "seq": {"N": "0"},
    "created_ms": {"N": "0"},
    "changed": FLAG_ITEM,
    "work_partition": {"S": "replay#inflight#3"},
    "work_position": {"S": "001796040001000#00000003#000001"},
}

RUN = Run(key=KEY, state=RunState.PLANNED, source="schedule", owner="one", budget=7)
RUN_ITEM: dict[str, dict[str, Any]] = {
    "key": {"M": {"job_class": {"S": "replay"}, "minute_ms": {"N": "1796040000000"}, "repair": {"BOOL": False}}},
    "state": {"S": "planned"},
    "source": {"S": "schedule"},
    "owner": {"S": "one"},
    "budget": {"N": "7"},
    "reason": {"S": ""},
}

CONTROL = Control(
    job_class="replay",
    pause=FLAG,
    webhook_closed=True,
    carry=Carry(live=-300_000_000, recovery=600_000_000),
    recent=CLOSE.recent,
    history=(replace(CLOSE.history[1], waiting=replace(CLOSE.history[1].waiting, live=3)),),
    measures=CLOSE.measures,
    rate=RATE,
    stage=STAGE,
)
CONTROL_ITEM: dict[str, dict[str, Any]] = {
    "pause": FLAG_ITEM,
    "webhook_closed": {"BOOL": True},
    "carry": {"M": {"live": {"N": "-300000000"}, "recovery": {"N": "600000000"}}},
    "recent": {"L": [{"M": {"at_ms": {"N": "1796040000000"}, "rows": {"N": "7"}}}]},
    "history": {
        "L": [
            {
                "M": {
                    "run_id": {"S": "replay@2026-11-30T12:00Z"},
                    "at_ms": {"N": "1796040000001"},
                    "paused": {"BOOL": False},
                    "waiting": {"M": {"live": {"N": "3"}, "recovery": {"N": "2000"}}},
                    "later": {"N": "1"},
                    "behind": {"N": "0"},
                    "in_flight": {"N": "40"},
                    "dead": {"N": "2"},
                    "budget": {"N": "7"},
                    "admitted": {"N": "7"},
                    "confirmed": {"N": "6"},
                    "swept": {"N": "1"},
                    "rate_per_s": {"N": "0.3333333333333333"},
                    "binding": {"S": "upstream"},
                    "oldest_age_s": {"N": "91"},
                    "eta_s": {"NULL": True},
                    "rate_binding": {"S": ""},
                    "staged": {"BOOL": False},
                    "facts": {"S": ""},
                    "cost": {"S": ""},
                    "granted": {"N": "0"},
                    "arrived": {"NULL": True},
                }
            }
        ]
    },
    "measures": {
        "M": {
            "calls_per_job": {"M": {"value": {"N": "2.5"}, "origin": {"S": "measured"}, "samples": {"N": "40"}}},
            "chunks_per_job": {"NULL": True},
            "service_s": {"M": {"value": {"N": "1.0"}, "origin": {"S": "declared"}, "samples": {"N": "0"}}},
            "long_chunk_s": {"M": {"value": {"N": "0.75"}, "origin": {"S": "remembered"}, "samples": {"N": "20"}}},
        }
    },
    "rate": {
        "M": {
            "rate_per_s": {"N": "2.5"},
            "flag": {
                "M": {
                    "by": {"S": "operator@example"},
                    "why": {"S": "quota – bis morgen"},
                    "at_ms": {"N": "1796040000000"},
                }
            },
            "until_ms": {"N": "1796043600000"},
        }
    },
    "stage": {
        "M": {
            "cause": {"S": "resumed"},
            "since_ms": {"N": "1796040000000"},
            "oldest_age_s": {"N": "91.0"},
            "pending": {"N": "2044"},
            "number": {"N": "1"},
            "windows": {"N": "1"},
            "window_ms": {"N": "1796040000000"},
        }
    },
}


def test_a_row_is_written_and_read_as_before() -> None:
    assert item_of_job(JOB) == JOB_ITEM
    assert job_of_item(JOB_ITEM) == JOB


def test_a_run_is_written_and_read_as_before() -> None:
    assert stored(asdict(RUN)) == RUN_ITEM
    assert load(Run, RUN_ITEM) == RUN


def test_control_is_written_and_read_as_before() -> None:
    assert {name: encode(getattr(CONTROL, name)) for name in CONTROL_ITEM} == CONTROL_ITEM
    assert load(Control, CONTROL_ITEM, job_class="replay") == CONTROL


@given(st.data())
def test_any_part_of_an_item_reads_as_its_values_and_defaults(data: st.DataObject) -> None:
    """An older version has not written every field, and a newer one writes others, also inside."""
    optional = [name for name in JOB_ITEM if name not in ("pk", "job_class", "match_id", "payload", "due_ms")]
    names = data.draw(st.sets(st.sampled_from(optional)))
    item = {name: attribute for name, attribute in JOB_ITEM.items() if name not in names} | {"new": {"N": "1"}}
    if "mark" in item:
        item["mark"] = {"M": {"epoch": {"N": "3"}, "cursor": {"S": "c1"}, "new": {"L": []}}}

    row = job_of_item(item)

    defaults = job_of_item({name: JOB_ITEM[name] for name in JOB_ITEM if name not in optional})
    for name in Job.__struct_fields__:
        wanted = StartMark(epoch=3, cursor="c1") if name == "mark" else getattr(JOB, name)
        assert getattr(row, name) == (getattr(defaults, name) if name in names else wanted)


@given(st.builds(a_job, st.text(), payload=st.text(), cursor=st.text(), epoch=st.integers(0, 2**60), lane=st.none()))
def test_any_row_reads_as_it_was_written(job: Job) -> None:
    assert job_of_item(item_of_job(job)) == job


@pytest.mark.parametrize("text", ("91", "91.0", "9.1E+1"))
def test_a_number_of_a_float_may_be_stored_as_a_whole_one(text: str) -> None:
    """DynamoDB keeps no trailing zeros, and chooses the notation itself."""
    item = CONTROL_ITEM["stage"]["M"] | {"oldest_age_s": {"N": text}}
    assert load(type(STAGE), item).oldest_age_s == 91.0


@pytest.mark.parametrize("number", (float("nan"), float("inf"), float("-inf")))
def test_a_number_that_is_not_finite_is_refused_however_deep_it_stands(number: float) -> None:
    for value in (number, [number], replace(STAGE, oldest_age_s=number)):
        with pytest.raises(ValueError, match="not finite"):
            encode(value)


def test_what_is_no_value_of_ours_is_refused() -> None:
    with pytest.raises(TypeError):
        encode(object())
