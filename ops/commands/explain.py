"""`explain CLASS`: why a tick admitted what it admitted, from the facts that it kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from ops.access import Access
from ops.commands.options import answer, class_named
from ops.wording import counted, duration, moment, signature
from shared.domain.control import Control, TickLine
from shared.domain.numbers import NANO
from shared.errors import InvalidInput
from shared.pacer.decide import Explained, RateBinding, TickPlan
from shared.pacer.decide import explain as explain_tick

RATE_BOUNDS: Final = {
    "upstream": "the upstream's limit",
    "slots": "the workers' slots",
    "override": "an override",
    "staged": "the staged recovery",
}
"""What a rate was bound by, in words."""
BUDGET_BOUNDS: Final = {
    "edge": "what was earned since the tick before",
    "level": "what the workers can use until the next tick",
    "max_inflight": "max_inflight",
    "waiting": "what waits",
    "paused": "the pause",
    "resumed": "its own earlier start",
}
"""What a budget was bound by, in words."""


@click.command(short_help="Say why a tick admitted what it did.")
@click.argument("job_class", metavar="CLASS")
@click.option(
    "--tick",
    "ticks_back",
    type=click.IntRange(min=0),
    default=0,
    help="How many ticks back: 0, the default, is the last one; about the last 15 are remembered.",
)
@click.option("--json", "as_json", is_flag=True, help="Print every factor as JSON.")
@click.pass_obj
def explain(access: Access, *, job_class: str, ticks_back: int, as_json: bool) -> None:
    """Show every number that a tick's budget was made of, where it came from, and which of them was the smallest.

    The plan is made again from the printed factors by the pacer's own code. Nothing but control is read.

    \b
    Examples
      python -m ops explain replay_summary
      python -m ops explain replay_summary --tick 3 --json
    """
    settings = class_named(access.settings(), job_class)
    control = access.ports().ledger.read_control(settings.name)
    tick = _tick(control, ticks_back)
    explained = explain_tick(tick)
    answer(as_json, as_figures(tick, explained), in_words(control, tick, explained, ticks_back))


def _tick(control: Control, ticks_back: int) -> TickLine:
    if not control.history:
        raise InvalidInput("CLASS", got="a class that has not ticked", expected="one with a tick to explain")
    kept = len(control.history)
    if ticks_back >= kept:
        expected = f"at most {kept - 1}: control remembers {counted(kept, 'tick')} of this class"
        raise InvalidInput("--tick", got=str(ticks_back), expected=expected)
    return control.history[-1 - ticks_back]


def as_figures(tick: TickLine, explained: Explained | None) -> dict[str, Any]:
    plan = None if explained is None else explained.plan
    return {
        "run_id": tick.run_id,
        "at_ms": tick.at_ms,
        "paused": tick.paused,
        "waiting": tick.waiting,
        "budget": tick.budget,
        "planned": None if plan is None else {"live": plan.live, "recovery": plan.recovery, "granted": plan.granted},
        "granted": tick.granted,
        "arrived": tick.arrived,
        "admitted": tick.admitted,
        "confirmed": tick.confirmed,
        "swept": tick.swept,
        "binding": tick.binding,
        "rate_binding": tick.rate_binding,
        "factors": None if plan is None else plan.factors,
    }


def in_words(control: Control, tick: TickLine, explained: Explained | None, ticks_back: int) -> Iterator[str]:
    which = "the last one" if ticks_back == 0 else f"{counted(ticks_back, 'tick')} back"
    yield (
        f"{control.job_class}: the tick of {moment(tick.at_ms)} ({which}) admitted {tick.admitted:,} of"
        f" {counted(tick.waiting.total, 'waiting row')}."
    )
    yield f"It was bound by {BUDGET_BOUNDS.get(tick.binding, tick.binding)}."
    for state, flag in (("halted", control.halt), ("paused", control.pause)):
        if tick.paused and flag is not None:
            yield f"The class is {state} by {signature(flag, with_time=True)}"
    if explained is None:
        yield f"A budget of {tick.budget:,} rows at {_number(tick.rate_per_s)} jobs/s. This tick kept no facts: another"
        yield "version of Sluice made it, or a field of them is not known here."
        return
    yield ""
    yield from _rate(explained)
    yield from _budget(explained)
    yield from _lanes(tick, explained.plan)
    yield ""
    yield from _table(explained.plan)


def _rate(explained: Explained) -> Iterator[str]:
    facts, plan = explained.snapshot, explained.plan
    value = {factor.name: factor for factor in plan.factors}
    slots, service = value["slots"], value["service_s"]
    yield f"rate      {_number(plan.rate_per_s)} jobs/s, the smallest of"
    if facts.upstream_rate_per_s is not None and facts.calls_per_job > 0:
        share = "" if facts.upstream_share == 1 else f" x a share of {_number(facts.upstream_share)}"
        jobs = facts.upstream_rate_per_s * facts.upstream_share / facts.calls_per_job
        source = value["upstream_rate_per_s"].source
        yield (
            f"          {_number(facts.upstream_rate_per_s)} calls/s of the upstream ({source}){share}"
            f" / {_number(facts.calls_per_job)} calls a job ({value['calls_per_job'].source})"
            f" = {_number(jobs)}{_bound(plan, RateBinding.UPSTREAM)}"
        )
    whose = "" if value["concurrency"].source == "configured" else f" ({value['concurrency'].source})"
    jobs = (slots.value or 0) / max(facts.service_s, 0.001)
    yield (
        f"          {_number(slots.value)} slots{whose} / {_number(facts.service_s)} s of worker time a job"
        f" ({service.source}) = {_number(jobs)}{_bound(plan, RateBinding.SLOTS)}"
    )
    if facts.override_rate_per_s is not None:
        source = value["override_rate_per_s"].source
        bound = _bound(plan, RateBinding.OVERRIDE)
        yield f"          {_number(facts.override_rate_per_s)} by override ({source}){bound}"
    if facts.staged_share is not None:
        source = value["staged_share"].source
        yield f"          x {_number(facts.staged_share)} ({source}){_bound(plan, RateBinding.STAGED)}"


def _budget(explained: Explained) -> Iterator[str]:
    facts, plan = explained.snapshot, explained.plan
    rate = f"{_number(plan.rate_per_s)} jobs/s"
    carried = (facts.carry.live + facts.carry.recovery) / NANO
    since = "of one interval, as this was the first tick" if facts.planned_at_ms is None else "since the last plan"
    horizon = f"{_number(facts.interval_s)} s interval + {_number(facts.lateness_s)} s lateness"
    yield f"budget    {counted(plan.budget, 'row')}{_why_none(explained)}, the smallest of"
    yield (
        f"          earned: {rate} x {_number(plan.elapsed_s)} s {since} + {_number(carried)} rows carried"
        f" + {facts.returned:,} left of the last live allowance = {plan.edge_rows:,} whole rows"
    )
    yield (
        f"          usable: {rate} x ({horizon} + {_number(facts.service_s)} s service) - {facts.in_flight:,} in flight"
        f" = {plan.level_rows:,} rows"
    )
    yield (
        f"          room: max_inflight {facts.max_inflight:,} - {facts.in_flight:,} in flight - {facts.unseen:,} that"
        f" the index may not show yet = {plan.cap_rows:,} rows"
    )


def _why_none(explained: Explained) -> str:
    if explained.snapshot.planned:
        return " (an earlier owner planned this run, or it only repairs)"
    return " (paused: nothing is earned meanwhile)" if explained.snapshot.paused else ""


def _lanes(tick: TickLine, plan: TickPlan) -> Iterator[str]:
    share = _number(plan.snapshot.live_share * 100)
    yield (
        f"lanes     {plan.live:,} live of {tick.waiting.live:,} that wait and {plan.recovery:,} recovery of"
        f" {tick.waiting.recovery:,}: live has a share of {share} %, and what one does not use is lent"
    )
    if plan.snapshot.expected_live:
        yield (
            f"kept      {plan.granted:,} rows for {plan.snapshot.expected_live:,} live ones expected before the next"
            f" tick; {tick.granted:,} were left to submitters"
        )
    planned = plan.live + plan.recovery
    missing = ""
    if tick.admitted < planned:
        missing = f" {planned - tick.admitted:,} fewer than planned: they moved or changed lanes first, or time was up."
    unsent = tick.admitted - tick.confirmed
    late = f" The sweep sends {unsent:,} whose message was not confirmed." if unsent > 0 else ""
    yield f"claimed   {tick.admitted:,} rows, {tick.confirmed:,} messages confirmed.{missing}{late}"
    if tick.swept:
        yield f"swept     {tick.swept:,} rows whose message had not been heard of for too long were sent again"
    if tick.oldest_age_s:
        yield f"oldest    the oldest waiting row had been eligible for {duration(tick.oldest_age_s)}"


def _table(plan: TickPlan) -> Iterator[str]:
    rows = [("factor", "value", "source")]
    rows += [(factor.name, _number(factor.value), factor.source) for factor in plan.factors]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        yield f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {source}"


def _bound(plan: TickPlan, binding: RateBinding) -> str:
    return "  <- this one" if plan.rate_binding is binding else ""


def _number(value: float | None) -> str:
    """At most four decimals: --json has them all."""
    if value is None:
        return "-"
    return f"{value:,.4f}".rstrip("0").rstrip(".")
