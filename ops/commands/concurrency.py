"""`concurrency CLASS [SLOTS|--back]`: how many workers a class may have at once, over both its lanes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ops.commands.options import Change, answer, signed_if_changing
from ops.commands.status import slots_in_words
from ops.wording import plain, signature
from shared.domain.control import SlotsOverride
from shared.domain.job import Lane
from shared.errors import InvalidInput
from shared.operate import concurrency as use
from shared.operate.concurrency import Concurrency


@click.command(
    short_help="Show or set how many workers a class may have.", context_settings={"ignore_unknown_options": True}
)
@click.argument("job_class", metavar="CLASS")
@click.argument("slots", metavar="[SLOTS]", type=int, required=False)
@click.option("--back", is_flag=True, help="Go back to what was verified last before it was set.")
@signed_if_changing
def concurrency(change: Change, *, job_class: str, slots: int | None, back: bool) -> None:
    """Show how many workers CLASS may have at once, or set it to SLOTS, split over the lanes as a deployment splits it.

    The bound is the MaximumConcurrency of the lanes' event source mappings. The command returns when both were read
    back, and ticks plan with the number from then on. It changes neither the learned rate nor an override of it: the
    smaller of the two still binds.

    A deployment leaves it alone unless it changes a mapping itself (slots, live_share, batch_size): CloudFormation
    writes that mapping anew, with the configured number, and so does one that reverts drift. Without SLOTS the command
    says whether the mappings still are what was set; the same command again puts them right.

    \b
    Examples
      python -m ops concurrency replay_summary
      python -m ops concurrency replay_summary 6 --reason "the provider asked for fewer connections"
      python -m ops concurrency replay_summary --back --reason "they are done"
    """
    settings = change.class_named(job_class)
    if slots is None and not back:
        if change.reason is not None:
            raise InvalidInput("SLOTS", got="nothing", expected="a number, or --back")
        shown = use.show(change.ports, change.access.mappings(), settings)
        answer(change.as_json, _state(shown), _shown(shown))
        return
    if slots is not None and back:
        raise InvalidInput("SLOTS", got="both", expected="a number, or --back instead of it")
    if change.reason is None:
        raise InvalidInput("--reason", got="nothing", expected="why the slots are set")
    ports, mappings, who = change.ports, change.access.mappings(), change.who
    before = use.show(ports, mappings, settings)
    override = use.change(ports, before, slots, by=who, why=change.reason)
    if not change.dry_run:
        click.echo("Waiting until both mappings say so ...", err=True)
        override = use.apply(ports, mappings, before, override)
    change.answer(_figures(before, override, dry_run=change.dry_run), _changed(before, override))


def _state(now: Concurrency) -> dict[str, Any]:
    return {
        "job_class": now.settings.name,
        "slots": now.in_force,
        "configured": now.settings.slots,
        "override": now.override,
        "lanes": {lane.value: now.lanes[lane].slots for lane in Lane},
        "agrees": now.agrees,
    }


def _shown(now: Concurrency) -> Iterator[str]:
    name, configured, override = now.settings.name, now.settings.slots, now.override
    yield f"{name}: {now.in_force} slots, {configured} configured"
    if override is not None and not override.settled:
        yield f"  override  {slots_in_words(override, configured)}"
    elif override is not None:
        flag = override.flag
        yield f"  before    {override.before}, until {flag.by} went back: {plain(flag.why)}"
    for lane in Lane:
        slots, settled = now.lanes[lane].slots, now.lanes[lane].settled
        allowed = "unbounded" if slots is None else f"at most {slots} at once"
        yield f"  {lane.value:<10}{allowed}" + ("" if settled else ", a change is being applied")
    if not now.agrees:
        yield "  warning   the mappings are not what ticks plan with: a deployment or somebody else set them"
        yield f'            put them right: python -m ops concurrency {name} {now.in_force} --reason "..."'


def _figures(before: Concurrency, override: SlotsOverride, *, dry_run: bool) -> dict[str, Any]:
    slots = override.wanted(before.settings.slots)
    return {
        "job_class": before.settings.name,
        "dry_run": dry_run,
        "slots": slots,
        "was": before.in_force,
        "lanes": {lane.value: part for lane, part in use.split(before.settings, slots).items()},
        "override": override,
    }


def _changed(before: Concurrency, override: SlotsOverride) -> Iterator[str]:
    name, slots = before.settings.name, override.wanted(before.settings.slots)
    yield f"{name}: {before.in_force} -> {slots} slots by {signature(override.flag)}"
    for lane, part in use.split(before.settings, slots).items():
        was = before.lanes[lane].slots
        yield f"  {lane.value:<10}{'unbounded' if was is None else was} -> {part} at once"
    yield f"  ticks plan with {slots} from the next one on; the learned rate of its upstream stays what it is"
    if override.slots is not None:
        yield "  a deployment leaves it alone, unless it changes slots, live_share or batch_size"
    else:
        yield "  that is what is configured: nothing is overridden any more"
    yield f'  undo: python -m ops concurrency {name} --back --reason "..."'
