"""`status [CLASS]`: every class at a glance, at once on any ledger size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.choice import class_named
from ops.commands.explain import BUDGET_BOUNDS, RATE_BOUNDS
from ops.wording import dollars, duration, moment, plain
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
    found = ports.parallel.map(lambda name: class_status(ports, settings.classes[name], exact=exact), names)
    if as_json:
        click.echo(json.dumps({"classes": [as_figures(each) for each in found]}, ensure_ascii=False))
    else:
        click.echo("\n\n".join("\n".join(in_words(each)) for each in found))


def as_figures(each: ClassStatus) -> dict[str, Any]:
    tick = each.last_tick
    figures: dict[str, Any] = {
        "class": each.job_class,
        "state": each.state,
        "pause": None if each.pause is None else to_builtins(each.pause),
        "halt": None if each.halt is None else to_builtins(each.halt),
        "rows": None if each.rows is None else to_builtins(each.rows) | {"pending": each.rows.pending},
        "rate_override": None if each.rate is None else to_builtins(each.rate),
        "slots_override": None if each.slots is None else to_builtins(each.slots),
        "recovery": None if each.stage is None else to_builtins(each.stage) | {"share": each.stage.share},
        "rate_per_s": None if tick is None else tick.rate_per_s,
        "rate_binding": None if tick is None else tick.rate_binding,
        "budget": None if tick is None else tick.budget,
        "budget_binding": None if tick is None else tick.binding,
        "last_tick": None if tick is None else {"run_id": tick.run_id, "at_ms": tick.at_ms, "admitted": tick.admitted},
        "tick_age_s": each.tick_age_s,
        "ticks_missing": each.ticks_missing,
        "net_rate_per_s": each.net_rate_per_s,
        "eta_s": each.eta_s,
        "cost": None if each.cost is None else cost_figures(each.cost),
    }
    return figures


def in_words(each: ClassStatus) -> list[str]:
    lines = [f"{each.job_class}: {state_in_words(each)}"]
    lines += [f"  {name:<10}{text}" for name, text in details(each)]
    return lines


def state_in_words(each: ClassStatus) -> str:
    for word, flag in ((HALTED, each.halt), (DrainState.PAUSED.value, each.pause)):
        if each.state == word and flag is not None:
            return f"{word} by {flag.by} at {moment(flag.at_ms)}: {plain(flag.why)}"
    if each.state == DrainState.DRAINING and each.eta_s is not None:
        return f"draining, done in {duration(each.eta_s)}"
    return _STATES.get(each.state, each.state)


def override_in_words(rate: RateOverride) -> str:
    until = "until it is cleared" if rate.until_ms is None else f"until {moment(rate.until_ms)}"
    return f"at most {rate.rate_per_s:g} jobs/s {until}, by {rate.flag.by}: {plain(rate.flag.why)}"


def slots_in_words(word: SlotsOverride, configured: int) -> str:
    slots, who = word.wanted(configured), f"by {word.flag.by}: {plain(word.flag.why)}"
    if word.verified_ms is None:
        in_force = word.in_force(configured)
        return f"{slots} slots wanted {who}; not verified: say it again, until then ticks plan with {in_force}"
    return f"{slots} slots since {moment(word.verified_ms)}, {who}; {word.before} before"


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
    each = "no job drained" if per_job is None else f"{dollars(per_job)} USD a drained job"
    parts = (
        ("Lambda", cost.lambda_usd),
        ("SQS", cost.sqs_usd),
        ("DynamoDB", cost.dynamodb_usd),
        ("upstream", cost.upstream_usd),
    )
    split = ", ".join(f"{name} {usd / cost.total_usd:.0%}" for name, usd in parts if usd)
    waste = cost.waste_usd / cost.total_usd if cost.total_usd else 0.0
    spent = f"{dollars(cost.total_usd)} USD over the last ticks"
    return f"{each}; {spent}" + (f" ({split}), {waste:.1%} of it wasted" if split else "")


def details(each: ClassStatus) -> Iterable[tuple[str, str]]:
    rows, tick = each.rows, each.last_tick
    if rows is not None:
        lanes = f"{rows.waiting.live:,} live, {rows.waiting.recovery:,} recovery"
        oldest = f", the oldest for {duration(rows.oldest_age_s)}" if rows.waiting.total else ""
        yield "waiting", f"{lanes}{oldest}"
        yield (
            "also",
            f"{rows.in_flight:,} in flight, {rows.later:,} not due, {rows.behind:,} behind, {rows.dead:,} dead",
        )
    elif tick is None:
        yield "rows", "unknown until the first tick; --exact counts them now"
    if each.rate is not None:
        yield "override", override_in_words(each.rate)
    if each.slots is not None:
        yield "override", slots_in_words(each.slots, each.configured_slots)
    if each.stage is not None:
        yield "recovery", f"staged since {each.stage.cause}: {each.stage.share:.0%} of the calculated rate"
    if tick is not None:
        bound = RATE_BOUNDS.get(tick.rate_binding)
        yield "rate", f"{tick.rate_per_s:.2f} jobs/s" + (f", bound by {bound}" if bound else "")
        bound = BUDGET_BOUNDS.get(tick.binding, tick.binding)
        kept = f", {tick.granted:,} left to submitters" if tick.granted else ""
        admitted = f"{tick.admitted:,} of {tick.budget:,} admitted{kept}, bound by {bound}"
        yield "last tick", f"{duration(each.tick_age_s or 0)} ago: {admitted}"
    if each.cost is not None:
        yield "cost", cost_in_words(each.cost)
    if each.ticks_missing:
        yield "warning", "ticks are missing: look at the schedule and the pacer's log"
