"""Send messages and know which of them the queue confirmed (facts F2, F4, F5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.domain.job import Job, Lane
from shared.domain.messages import Outgoing, batches, group_id, message_of
from shared.errors import QueueUnavailable
from shared.ports import Ports

_TRIES: Final = 3
"""How often a message is sent that the queue does not confirm; then it is left to the sweep."""

_PAUSE_S: Final = 0.2
"""Before the second try twice as long, before the third four times."""


def send_jobs(ports: Ports, jobs: Sequence[Job]) -> int:
    """Send each queued job's message to the lane stored on its row; return how many the queue confirmed.

    An entry that failed, or of which the answer said nothing, is tried again with the same dedup id: had it been
    accepted, the queue drops the repeat. What stays unconfirmed is in flight all the same, and the sweep heals it.
    """
    confirmed = 0
    for lane in Lane:
        rows = [job for job in jobs if job.lane is lane]
        if rows:
            confirmed += _send_lane(ports, rows[0].job_class, lane, rows)
    return confirmed


def _send_lane(ports: Ports, job_class: str, lane: Lane, jobs: Sequence[Job]) -> int:
    todo = [Outgoing(message=message_of(job), group=group_id(job.match_id)) for job in jobs]
    for attempt in range(_TRIES):
        if attempt:
            ports.clock.sleep(_PAUSE_S * 2**attempt)
        parts = batches(todo, size=_size_bytes)
        unconfirmed = ports.parallel.map(lambda part: _send_batch(ports, job_class, lane, part), parts)
        todo = [outgoing for part in unconfirmed for outgoing in part]
        if not todo:
            break
    if todo:
        ports.log.event("send_unconfirmed", job_class=job_class, lane=lane.value, messages=len(todo))
    return len(jobs) - len(todo)


def _send_batch(ports: Ports, job_class: str, lane: Lane, batch: Sequence[Outgoing]) -> list[Outgoing]:
    """What the queue did not confirm. Only `successful` counts: an entry can be missing from both lists."""
    try:
        answer = ports.queue.send_batch(job_class, lane, batch)
    except QueueUnavailable:
        return list(batch)
    return [outgoing for position, outgoing in enumerate(batch) if position not in answer.successful]


def _size_bytes(outgoing: Outgoing) -> int:
    """An upper bound of the entry: its body is ASCII JSON, where a character takes up to three times its UTF-8."""
    message = outgoing.message
    text = (message.job_id, message.job_class, message.cursor, outgoing.group)
    return 512 + sum(len(part.encode("utf-8", "surrogatepass")) * 3 for part in text)
