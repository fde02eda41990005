"""What a run would have used on AWS: its port calls, counted one by one, in the units of `shared.core.usage`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ops.sim.sluice_world import SimSluice
from shared.core.cost import Usage
from shared.core.settings import ClassSettings
from shared.core.usage import index_read_units, read_units, write_units


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCounts:
    """Write requests and reads of the ledger by name, rows that its index showed, permits asked for, queue requests,
    invocations and their time. `output`: the chunks gave one."""

    writes: Mapping[str, int]
    reads: Mapping[str, int]
    index_rows: int = 0
    reservations: int = 0
    queue_requests: int
    invocations: int
    compute_s: float
    memory_mb: int
    output: bool = True
    ordered: bool = False

    @property
    def usage(self) -> Usage:
        """A move that stores an output cannot show the row that it made, which is read afterwards."""
        stores = self.writes.get("commit", 0) + self.writes.get("continue", 0) + self.writes.get("finish", 0)
        return Usage(
            write_units=self.reservations
            + sum(
                count * write_units(name, output=self.output, ordered=self.ordered)
                for name, count in self.writes.items()
            ),
            read_units=sum(count * read_units(name) for name, count in self.reads.items())
            + index_read_units(self.index_rows)
            + (stores if self.output else 0),
            queue_requests=self.queue_requests,
            invocations=self.invocations,
            gb_seconds=self.compute_s * self.memory_mb / 1024,
        )

    @property
    def usd(self) -> float:
        return self.usage.usd()


def port_counts(sluice: SimSluice, job_class: ClassSettings) -> PortCounts:
    """Of a world with one class. A message is sent in a batch, received and deleted; the pacer's and the readers' time
    counts as the workers'."""
    ended = [one for one in sluice.world.invocations if one.ended_ms is not None]
    return PortCounts(
        writes=dict(sluice.ledger.writes),
        reads=dict(sluice.ledger.reads),
        index_rows=sluice.ledger.index_rows,
        reservations=sluice.limiter.requests,
        queue_requests=sluice.queue.send_calls + 2 * sum(mapping.batches for mapping in sluice.mappings),
        invocations=len(sluice.world.invocations),
        compute_s=sum(max(0, (one.ended_ms or 0) - one.at_ms) for one in ended) / 1000,
        memory_mb=job_class.memory_mb,
        ordered=job_class.ordered,
    )
