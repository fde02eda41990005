"""The strict queue: what SQS FIFO does and local emulators do not (facts F1 to F12)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shared.domain.job import Lane
from shared.domain.messages import Delivery, Message, Outgoing
from shared.domain.settings import ClassSettings, Settings
from shared.memory.queue import RETENTION_MS, EntryFault, FifoQueue, MemoryQueue

VISIBILITY_MS = 130_000
MAX_RECEIVES = 6
FIVE_MINUTES_MS = 300_000


@dataclass
class Clock:
    now_ms: int = 1_000_000


class Bench:
    """One class's queues under a clock that the test moves."""

    def __init__(self, **options: object) -> None:
        settings = Settings(classes={"replay": ClassSettings(name="replay", kind="k")})
        self.clock = Clock()
        self.queue = MemoryQueue(settings, lambda: self.clock.now_ms, **options)  # type: ignore[arg-type]

    def send(self, *names: str, lane: Lane = Lane.LIVE, epoch: int = 1) -> list[int]:
        """Each name is group and job, as "g1:a". Returns the positions that were confirmed."""
        batch = [outgoing(*name.split(":"), epoch=epoch) for name in names]
        return sorted(self.queue.send_batch("replay", lane, batch).successful)

    def receive(self, limit: int = 10, lane: Lane = Lane.LIVE) -> list[Delivery]:
        return self.queue.receive("replay", lane, limit)

    def jobs(self, limit: int = 10, lane: Lane = Lane.LIVE) -> list[str]:
        return [delivery.message.job_id for delivery in self.receive(limit, lane)]

    def later(self, ms: int) -> None:
        self.clock.now_ms += ms


def outgoing(group: str, job_id: str = "a", *, epoch: int = 1) -> Outgoing:
    message = Message(job_id=job_id, job_class="replay", cursor="", epoch=epoch, copy=0)
    return Outgoing(message=message, group=group)


# -- deduplication


@pytest.mark.parametrize(
    ("after_ms", "ids"),
    [
        (FIVE_MINUTES_MS - 1, 1),  # dropped, and the first message's id is the answer
        (FIVE_MINUTES_MS, 2),
    ],
)
def test_a_dedup_id_is_remembered_for_five_minutes_also_after_a_delete(after_ms: int, ids: int) -> None:
    bench = Bench()
    bench.send("g:a")
    (delivery,) = bench.receive()
    bench.queue.delete(delivery)
    bench.later(after_ms)
    assert bench.send("g:a") == [0]
    assert len(set(bench.queue.sent)) == ids
    assert len(bench.jobs()) == ids - 1


def test_a_dropped_repeat_does_not_prolong_the_memory_of_the_first() -> None:
    bench = Bench()
    bench.send("g:a")
    bench.later(200_000)
    bench.send("g:a")
    bench.later(100_000)
    bench.send("g:a")
    assert bench.queue.sent == ["replay/live-1", "replay/live-1", "replay/live-2"]


def test_the_next_epoch_of_a_job_is_a_new_message_and_a_twin_in_one_batch_is_not() -> None:
    bench = Bench()
    assert bench.send("g:a", "g:a") == [0, 1]
    bench.send("g:a", epoch=2)
    assert [delivery.message.epoch for delivery in bench.receive()] == [1, 2]


def test_each_lane_remembers_for_itself() -> None:
    bench = Bench()
    bench.send("g:a")
    bench.send("g:a", lane=Lane.RECOVERY)
    assert (bench.jobs(), bench.jobs(lane=Lane.RECOVERY)) == (["a"], ["a"])


# -- order and locks


def test_a_receive_takes_what_fits_of_a_group_before_the_next_group() -> None:
    bench = Bench()
    bench.send("g1:a", "g2:b", "g1:c", "g2:d", "g3:e")
    assert bench.jobs(limit=3) == ["a", "c", "b"]
    assert bench.jobs() == ["e"]  # g1 and g2 are locked


def test_a_group_is_locked_until_every_message_of_it_in_flight_is_deleted_or_visible() -> None:
    bench = Bench()
    bench.send("g:a", "g:b", "g:c")
    first, second = bench.receive(limit=2)
    bench.queue.delete(first)
    assert bench.jobs() == []
    bench.queue.delete(second)
    assert bench.jobs() == ["c"]


def test_a_failed_head_comes_back_before_its_successors_and_only_after_the_visibility() -> None:
    bench = Bench()
    bench.send("g:a", "g:b")
    bench.receive(limit=1)
    bench.later(VISIBILITY_MS - 1)
    assert bench.jobs() == []
    bench.later(1)
    assert bench.jobs() == ["a", "b"]


def test_a_group_stays_locked_by_the_message_whose_visibility_was_extended() -> None:
    bench = Bench()
    bench.send("g:a", "g:b")
    head, _ = bench.receive()
    bench.later(100_000)
    assert bench.queue.extend(head, seconds=130)
    bench.later(30_000)  # b alone would be visible now
    assert bench.jobs() == []
    bench.later(100_000)
    assert bench.jobs() == ["a", "b"]


def test_visibility_zero_gives_a_message_back_at_once() -> None:
    bench = Bench()
    bench.send("g:a")
    (delivery,) = bench.receive()
    assert bench.queue.extend(delivery, seconds=0)
    assert bench.jobs() == ["a"]


# -- receipts, receives, dead letters


def test_an_expired_receipt_deletes_nothing_and_extends_nothing() -> None:
    bench = Bench()
    bench.send("g:a")
    (old,) = bench.receive()
    bench.later(VISIBILITY_MS)
    bench.queue.delete(old)
    assert not bench.queue.extend(old, seconds=60)
    (new,) = bench.receive()
    bench.queue.delete(old)
    assert (new.receive_count, new.first_received_ms) == (2, old.first_received_ms)
    bench.queue.delete(new)
    bench.later(VISIBILITY_MS)
    assert bench.jobs() == []


def test_a_refused_extension_says_so() -> None:
    bench = Bench()
    bench.send("g:a")
    bench.queue.refuse_extensions = True
    assert not bench.queue.extend(bench.receive()[0], seconds=60)


def test_the_receive_after_the_last_allowed_one_moves_the_head_to_the_dead_letters_and_frees_its_group() -> None:
    bench = Bench()
    bench.send("g:a")
    for count in range(1, MAX_RECEIVES + 1):
        assert [delivery.receive_count for delivery in bench.receive()] == [count]
        bench.later(VISIBILITY_MS)
    bench.send("g:b")
    assert bench.jobs() == ["b"]
    (dead,) = bench.queue.receive_dead("replay")
    assert (dead.message.job_id, dead.lane, dead.receive_count) == ("a", Lane.LIVE, 1)
    bench.queue.delete(dead)
    assert len(bench.queue.dead_letters("replay")) == 0


def test_a_message_that_nobody_fetched_is_gone_after_14_days() -> None:
    bench = Bench()
    bench.send("g:a")
    bench.later(RETENTION_MS - 1)
    bench.send("g:b")
    bench.later(1)
    assert bench.jobs() == ["b"]


# -- limits


@pytest.mark.parametrize(
    ("group", "accepted"),
    [
        ("x", True),
        ("x" * 128, True),
        ("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", True),
        ("", False),
        ("x" * 129, False),
        ("two words", False),
        ("Köln", False),
        ("tab\t", False),
        ("line\n", False),
    ],
)
def test_a_group_id_is_1_to_128_printable_ascii_characters_without_the_space(group: str, accepted: bool) -> None:
    bench = Bench()
    if accepted:
        assert bench.queue.send_batch("replay", Lane.LIVE, [outgoing(group)]).successful == {0}
    else:
        with pytest.raises(ValueError, match="group id"):
            bench.queue.send_batch("replay", Lane.LIVE, [outgoing(group)])


@pytest.mark.parametrize("size", [0, 11])
def test_a_batch_holds_1_to_10_messages(size: int) -> None:
    with pytest.raises(ValueError, match=f"got {size} entries"):
        Bench().send(*(f"g:{number}" for number in range(size)))


def test_a_batch_holds_256_kib_in_utf8_bytes() -> None:
    bench = Bench()
    wide = "ü" * (26 * 1024 // 2)  # 26 KiB each: nine fit, ten do not
    bench.send(*(f"g:{number}{wide}" for number in range(9)))
    with pytest.raises(ValueError, match="bytes"):
        bench.send(*(f"h:{number}{wide}" for number in range(10)))


def test_no_more_messages_are_in_flight_than_the_cap() -> None:
    bench = Bench(in_flight_cap=3)
    bench.send("g1:a", "g1:b", "g2:c", "g2:d", "g3:e")
    taken = bench.receive()
    assert [delivery.message.job_id for delivery in taken] == ["a", "b", "c"]
    assert bench.jobs() == []
    bench.queue.delete(taken[2])
    assert bench.jobs() == ["d"]


def test_only_the_oldest_messages_are_searched_for_a_group_that_is_free() -> None:
    queue = FifoQueue("q", visibility_ms=VISIBILITY_MS, searched=3)
    for number, group in enumerate(["g1", "g1", "g1", "g2"]):
        message = Message(job_id=f"j{number}", job_class="replay", cursor="", epoch=1, copy=0)
        queue.send(message, group=group, dedup_id=str(number), lane=Lane.LIVE, now_ms=0)
    (head,) = queue.receive(1, now_ms=0)
    assert queue.receive(1, now_ms=0) == []  # g1 hides g2 although g2 is free (fact F8)
    queue.delete(head.receipt, now_ms=0)
    assert [stored.message.job_id for stored in queue.receive(10, now_ms=0)] == ["j1", "j2", "j3"]


# -- faults


def test_an_entry_that_failed_or_is_in_neither_list_may_have_been_accepted_or_not() -> None:
    faults = {"b": EntryFault.FAILED, "c": EntryFault.UNKNOWN_LOST, "d": EntryFault.UNKNOWN_SENT}
    bench = Bench(entry_fault=lambda sent: faults.get(sent.message.job_id))
    batch = [outgoing("g", job_id) for job_id in "abcd"]
    answer = bench.queue.send_batch("replay", Lane.LIVE, batch)
    assert (set(answer.successful), set(answer.failed)) == ({0}, {1})
    assert bench.jobs() == ["a", "d"]
