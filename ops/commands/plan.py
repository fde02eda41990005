"""`plan [CLASS]`: whether a backlog drains, when, what binds and what would change it."""

from __future__ import annotations

from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from ops.access import Access
from ops.commands.options import answer, class_named
from ops.wording import counted, duration
from shared.domain.settings import ClassSettings
from shared.errors import HistoryUnavailable, InvalidInput
from shared.operate import capacity
from shared.operate.capacity import CapacityPlan, Shape
from shared.operate.class_facts import ClassFacts, declared_facts, live_facts, sample_matches, undeferred_s
from shared.pacer.decide import Factor
from shared.ports import Ports

_UNITS: Final = {"pending": "jobs", "arrivals": "jobs/s", "limit": "calls/s", "service": "s", "interval": "s"}
"""Of the numbers that have one."""
_REQUIRED: Final = ("pending", "slots", "service")
_DEFAULTS: Final = {"arrivals": 0.0, "share": 1.0, "calls": 1.0, "interval": 60.0}
"""Options that have to be given without a class, and what the others are then."""


class _Question(Struct, frozen=True, kw_only=True):
    """The numbers by option, and what of the class says whether this is the right tool and what a job costs.

    `unknown` is what could not be asked, in sentences.
    """

    numbers: dict[str, Factor]
    shape: Shape
    job_usd: float | None
    unknown: tuple[str, ...] = ()


@click.command(short_help="Say whether and when a backlog drains, and what binds.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@click.option("--pending", type=click.IntRange(min=0), help="Jobs that are not finished.")
@click.option("--arrivals", type=float, help="New jobs per second.  [default: 0, or observed]")
@click.option("--limit", type=float, help="Calls per second that the upstream allows.  [default: none, or learned]")
@click.option("--slots", type=click.IntRange(min=0), help="Concurrent workers.")
@click.option("--service", type=float, help="Seconds of worker time per job.")
@click.option("--calls", type=float, help="Upstream calls per job.  [default: 1, or measured]")
@click.option("--share", type=float, help="This class's share of the limit, above 0, at most 1.  [default: 1]")
@click.option("--interval", type=float, help="Seconds between ticks.  [default: 60]")
@click.option("--matches", type=click.IntRange(min=0), help="Matches that are ready: each runs one job at a time.")
@click.option("--declared", is_flag=True, help="Ask the configuration alone, no deployment: nothing waits there.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_obj
def plan(
    access: Access,
    /,
    *,
    job_class: str | None,
    matches: int | None,
    declared: bool,
    as_json: bool,
    **given: float | None,
) -> None:
    """min(R, W/S) - A: what the upstream or the workers allow, less what arrives.

    Without CLASS every number is yours, and no deployment is asked. With CLASS the numbers that you do not give are
    read from it: what its last ticks saw and measured. Its oldest rows and its last day's metrics then say whether
    this is the right tool at all. It never changes anything; a plan that never drains is an answer too, with exit
    code 0.

    \b
    Examples
      python -m ops plan --pending 2400 --arrivals 10 --limit 40 --slots 50 --service 1
      python -m ops plan replay_summary
      python -m ops plan replay_summary --slots 40
      python -m ops plan replay_summary --declared --pending 40000
    """
    mine = {name: Factor(name=name, value=value, source="given") for name, value in given.items() if value is not None}
    asked = _of_nothing(mine) if job_class is None else _of_class(access, job_class, mine, declared=declared)
    planned = _planned(asked, matches)
    pending = asked.numbers["pending"].value or 0
    cost_usd = None if asked.job_usd is None else asked.job_usd * pending
    answer(as_json, _figures(planned, asked, cost_usd), _lines(planned, asked, cost_usd))


def _of_nothing(mine: dict[str, Factor]) -> _Question:
    for name in _REQUIRED:
        if name not in mine:
            raise InvalidInput(f"--{name}", got="nothing", expected="a number, or a CLASS to read it from")
    defaults = {name: Factor(name=name, value=value, source="default") for name, value in _DEFAULTS.items()}
    return _Question(numbers=defaults | mine, shape=Shape(), job_usd=None)


def _of_class(access: Access, name: str, mine: dict[str, Factor], *, declared: bool) -> _Question:
    settings = access.settings()
    job_class = class_named(settings, name)
    upstream = settings.upstream_of(job_class)
    live = {"pending", "arrivals", "service", "calls"} | ({"limit"} if upstream is not None else set())
    if declared or live <= mine.keys():
        facts = declared_facts(job_class, upstream)
        return _Question(numbers=facts.numbers | mine, shape=_shape(facts), job_usd=facts.job_usd)
    ports = access.ports()
    facts = live_facts(ports, job_class, upstream)
    shape, unknown = _of_rows(access, ports, job_class, _shape(facts))
    return _Question(numbers=facts.numbers | mine, shape=shape, job_usd=facts.job_usd, unknown=unknown)


def _shape(facts: ClassFacts) -> Shape:
    chunk = facts.longest_chunk
    return Shape(longest_chunk_s=chunk.value, chunk_source=f"p95, {chunk.source}", chunk_room_s=facts.chunk_room_s)


def _of_rows(access: Access, ports: Ports, settings: ClassSettings, shape: Shape) -> tuple[Shape, tuple[str, ...]]:
    """The shape with what rows and metrics say, and what they could not be asked."""
    with_sample = replace(shape, sample=sample_matches(ports, settings))
    try:
        quiet_s = undeferred_s(access.history(), settings, now_ms=ports.clock.now_ms())
    except HistoryUnavailable as error:
        return with_sample, (f"Whether the pool ever saturates is not known: CloudWatch did not say ({error.detail}).",)
    return replace(with_sample, undeferred_s=quiet_s), ()


def _planned(asked: _Question, matches: int | None) -> CapacityPlan:
    number = {name: factor.value for name, factor in asked.numbers.items() if factor.value is not None}
    shape = asked.shape if matches is None else replace(asked.shape, ready_matches=matches)
    try:
        return capacity.plan(
            pending=int(number["pending"]),
            arrivals_per_s=number["arrivals"],
            slots=int(number["slots"]),
            service_s=number["service"],
            limit_per_s=number.get("limit"),
            share=number["share"],
            calls_per_job=number["calls"],
            interval_s=number["interval"],
            shape=shape,
        )
    except ValueError as error:
        raise _as_option(error) from None


def _as_option(error: ValueError) -> InvalidInput:
    """The core names its argument; a person typed an option."""
    name, _, rest = str(error).partition(" must be ")
    expected, _, got = rest.rpartition(", got ")
    option = name.removesuffix("_per_s").removesuffix("_s").removesuffix("_per_job")
    return InvalidInput(f"--{option}", got=got, expected=expected)


def _figures(planned: CapacityPlan, asked: _Question, cost_usd: float | None) -> dict[str, Any]:
    return {
        "drains": planned.drains,
        "net_rate_per_s": planned.net_rate_per_s,
        "drain_s": planned.drain_s,
        "binding": planned.binding.value,
        "ticks": planned.ticks,
        "cost_usd": cost_usd,
        "upstream_rate_per_s": planned.upstream_rate_per_s,
        "slots_rate_per_s": planned.slots_rate_per_s,
        "sentences": planned.sentences,
        "warnings": planned.warnings,
        "unknown": asked.unknown,
        "numbers": {name: {"value": factor.value, "source": factor.source} for name, factor in asked.numbers.items()},
    }


def _lines(planned: CapacityPlan, asked: _Question, cost_usd: float | None) -> list[str]:
    lines = [planned.sentences[0], *(f"  {sentence}" for sentence in planned.sentences[1:])]
    if planned.drain_s is not None and planned.ticks is not None:
        lines.append(f"  done in {duration(planned.drain_s)}, over {counted(planned.ticks, 'tick')}")
    if cost_usd is not None:
        lines.append(f"  about {cost_usd:.2f} USD of table, queue and workers, without what the upstream charges")
    lines += [f"  warning: {warning}" for warning in planned.warnings]
    lines += [f"  {sentence}" for sentence in asked.unknown]
    lines.append("  from")
    for name, factor in asked.numbers.items():
        value = f"{factor.value:g} {_UNITS.get(name, '')}".rstrip()
        lines.append(f"    {name:<9}{value:<20}{factor.source}")
    return lines
