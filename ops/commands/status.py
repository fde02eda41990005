"""`status [CLASS]`: every class at a glance, at once on any ledger size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.explain import BUDGET_BOUNDS, RATE_BOUNDS
from ops.commands.options import answer, class_named
from ops.wording import dollars, duration, moment, signature
from shared.domain.control import RateOverride, SlotsOverride
from shared.operate.status import HALTED, NOT_TICKED, ClassStatus, class_status
from shared.pacer.cost import PRICES, Spending
from shared.pacer.forecast import DrainState

_STATES: Final = {
    DrainState.MEASURING: "measuring: the rate is known after two ticks",
    DrainState.GROWING: "will not drain: more arrives than is finished",
    DrainState.SCHEDULED: "nothing to do before the next row is due",
    DrainState.STALLED: "will not drain: nothing is finished",
    NOT_TICKED: "no tick yet",
}
"""States that take more than their name to be understood."""


@click.command(short_help="Show every class: rows, rate, ETA.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--exact", is_flag=True, help="Count the rows now instead of showing what the last tick saw.")
@click.pass_obj
def status(access: Access, *, job_class: str | None, as_json: bool, exact: bool) -> None:
    """Show what each class is doing and when it will be done, as its last tick saw it; --exact counts anew.

    \b
    Examples
      python -m ops status
      python -m ops status replay_summary --exact --json
    """
    settings = access.settings()
    names = sorted(settings.classes) if job_class is None else [class_named(settings, job_class).name]
    ports = access.ports()
    classes = ports.parallel.map(lambda name: class_status(ports, settings.classes[name], exact=exact), names)
    paragraphs = "\n\n".join("\n".join(in_words(shown)) for shown in classes)
    answer(as_json, {"classes": [as_figures(shown) for shown in classes]}, [paragraphs])


def as_figures(shown: ClassStatus) -> dict[str, Any]:
    tick, rows, stage, cost = shown.last_tick, shown.rows, shown.stage, shown.cost
    return {
        "class": shown.job_class,
        "state": shown.state,
        "pause": shown.pause,
        "halt": shown.halt,
        "rows": rows and to_builtins(rows) | {"pending": rows.pending},
        "rate_override": shown.rate,
        "slots_override": shown.slots,
        "recovery": stage and to_builtins(stage) | {"share": stage.share},
        "rate_per_s": tick and tick.rate_per_s,
        "rate_binding": tick and tick.rate_binding,
        "budget": tick and tick.budget,
        "budget_binding": tick and tick.binding,
        "last_tick": tick and {"run_id": tick.run_id, "at_ms": tick.at_ms, "admitted": tick.admitted},
        "tick_age_s": shown.tick_age_s,
        "ticks_missing": shown.ticks_missing,
        "net_rate_per_s": shown.net_rate_per_s,
        "eta_s": shown.eta_s,
        "cost": cost and cost_figures(cost),
    }


def in_words(shown: ClassStatus) -> list[str]:
    return [f"{shown.job_class}: {state_in_words(shown)}", *(f"  {name:<10}{text}" for name, text in details(shown))]


def state_in_words(shown: ClassStatus) -> str:
    for state, flag in ((HALTED, shown.halt), (DrainState.PAUSED.value, shown.pause)):
        if shown.state == state and flag is not None:
            return f"{state} by {signature(flag, with_time=True)}"
    if shown.state == DrainState.DRAINING and shown.eta_s is not None:
        return f"draining, done in {duration(shown.eta_s)}"
    return _STATES.get(shown.state, shown.state)


def override_in_words(override: RateOverride) -> str:
    until = "until it is cleared" if override.until_ms is None else f"until {moment(override.until_ms)}"
    return f"at most {override.rate_per_s:g} jobs/s {until}, by {signature(override.flag)}"


def slots_in_words(override: SlotsOverride, configured: int) -> str:
    slots, who = override.wanted(configured), f"by {signature(override.flag)}"
    if override.verified_ms is None:
        in_force = override.in_force(configured)
        return f"{slots} slots wanted {who}; not verified: say it again, until then ticks plan with {in_force}"
    return f"{slots} slots since {moment(override.verified_ms)}, {who}; {override.before} before"


def cost_figures(cost: Spending) -> dict[str, Any]:
    """US dollars of the ticks that control remembers; the parts add up to the total, and waste is a part of it."""
    return {
        **to_builtins(cost),
        "total_usd": cost.total_usd,
        "per_job_usd": cost.per_job_usd,
        "prices_as_of": PRICES.as_of,
        "prices_region": PRICES.region,
    }


def cost_in_words(cost: Spending) -> str:
    per_job = cost.per_job_usd
    price = "no job drained" if per_job is None else f"{dollars(per_job)} USD a drained job"
    parts = (
        ("Lambda", cost.lambda_usd),
        ("SQS", cost.sqs_usd),
        ("DynamoDB", cost.dynamodb_usd),
        ("upstream", cost.upstream_usd),
    )
    split = ", ".join(f"{name} {usd / cost.total_usd:.0%}" for name, usd in parts if usd)
    waste = cost.waste_usd / cost.total_usd if cost.total_usd else 0.0
    spent = f"{dollars(cost.total_usd)} USD over the last ticks"
    return f"{price}; {spent}" + (f" ({split}), {waste:.1%} of it wasted" if split else "")


def details(shown: ClassStatus) -> Iterator[tuple[str, str]]:
    rows, tick = shown.rows, shown.last_tick
    if rows is not None:
        lanes = f"{rows.waiting.live:,} live, {rows.waiting.recovery:,} recovery"
        oldest = f", the oldest for {duration(rows.oldest_age_s)}" if rows.waiting.total else ""
        yield "waiting", f"{lanes}{oldest}"
        also = f"{rows.in_flight:,} in flight, {rows.later:,} not due, {rows.behind:,} behind, {rows.dead:,} dead"
        yield "also", also
    elif tick is None:
        yield "rows", "unknown until the first tick; --exact counts them now"
    if shown.rate is not None:
        yield "override", override_in_words(shown.rate)
    if shown.slots is not None:
        yield "override", slots_in_words(shown.slots, shown.configured_slots)
    if shown.stage is not None:
        yield "recovery", f"staged since {shown.stage.cause}: {shown.stage.share:.0%} of the calculated rate"
    if tick is not None:
        bound = RATE_BOUNDS.get(tick.rate_binding)
        yield "rate", f"{tick.rate_per_s:.2f} jobs/s" + (f", bound by {bound}" if bound else "")
        bound = BUDGET_BOUNDS.get(tick.binding, tick.binding)
        kept = f", {tick.granted:,} left to submitters" if tick.granted else ""
        admitted = f"{tick.admitted:,} of {tick.budget:,} admitted{kept}, bound by {bound}"
        yield "last tick", f"{duration(shown.tick_age_s or 0)} ago: {admitted}"
    if shown.cost is not None:
        yield "cost", cost_in_words(shown.cost)
    if shown.ticks_missing:
        yield "warning", "ticks are missing: look at the schedule and the pacer's log"
