"""`concurrency CLASS [SLOTS|--back]`: how many workers a class may have at once, over both its lanes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.choice import caller, class_named, signed_if_changing
from ops.commands.status import slots_in_words
from ops.wording import plain
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
@click.pass_obj
def concurrency(
    access: Access,
    *,
    job_class: str,
    slots: int | None,
    back: bool,
    reason: str | None,
    by: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
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
    settings = class_named(access.settings(), job_class)
    if slots is None and not back:
        if reason is not None:
            raise InvalidInput("SLOTS", got="nothing", expected="a number, or --back")
        seen = use.show(access.ports(), access.mappings(), settings)
        _say(as_json, _state(seen), _shown(seen))
        return
    if slots is not None and back:
        raise InvalidInput("SLOTS", got="both", expected="a number, or --back instead of it")
    if reason is None:
        raise InvalidInput("--reason", got="nothing", expected="why the slots are set")
    ports, mappings, who = access.ports(), access.mappings(), caller(access, by)
    before = use.show(ports, mappings, settings)
    word = use.change(ports, before, slots, by=who, why=reason)
    if not dry_run:
        click.echo("Waiting until both mappings say so ...", err=True)
        word = use.apply(ports, mappings, before, word)
    _say(as_json, _figures(before, word, dry_run=dry_run), _changed(before, word, dry_run=dry_run))


def _say(as_json: bool, figures: dict[str, Any], lines: Iterator[str]) -> None:
    click.echo(json.dumps(figures, ensure_ascii=False) if as_json else "\n".join(lines))


def _state(seen: Concurrency) -> dict[str, Any]:
    return {
        "job_class": seen.settings.name,
        "slots": seen.in_force,
        "configured": seen.settings.slots,
        "override": None if seen.override is None else to_builtins(seen.override),
        "lanes": {lane.value: seen.lanes[lane].slots for lane in Lane},
        "agrees": seen.agrees,
    }


def _shown(seen: Concurrency) -> Iterator[str]:
    name, configured = seen.settings.name, seen.settings.slots
    yield f"{name}: {seen.in_force} slots, {configured} configured"
    if seen.override is not None and not seen.override.settled:
        yield f"  override  {slots_in_words(seen.override, configured)}"
    elif seen.override is not None:
        flag = seen.override.flag
        yield f"  before    {seen.override.before}, until {flag.by} went back: {plain(flag.why)}"
    for lane in Lane:
        yield f"  {lane.value:<10}{_lane(seen, lane)}"
    if not seen.agrees:
        again = f'{seen.in_force} --reason "..."'
        yield "  warning   the mappings are not what ticks plan with: a deployment or somebody else set them"
        yield f"            put them right: python -m ops concurrency {name} {again}"


def _lane(seen: Concurrency, lane: Lane) -> str:
    found = seen.lanes[lane]
    allowed = "unbounded" if found.slots is None else f"at most {found.slots} at once"
    return allowed if found.settled else f"{allowed}, a change is being applied"


def _figures(before: Concurrency, word: SlotsOverride, *, dry_run: bool) -> dict[str, Any]:
    slots = word.wanted(before.settings.slots)
    return {
        "job_class": before.settings.name,
        "dry_run": dry_run,
        "slots": slots,
        "was": before.in_force,
        "lanes": {lane.value: part for lane, part in use.split(before.settings, slots).items()},
        "override": to_builtins(word),
    }


def _changed(before: Concurrency, word: SlotsOverride, *, dry_run: bool) -> Iterator[str]:
    name, configured = before.settings.name, before.settings.slots
    slots = word.wanted(configured)
    if dry_run:
        yield "Dry run, nothing was changed."
    yield f"{name}: {before.in_force} -> {slots} slots by {word.flag.by}: {plain(word.flag.why)}"
    for lane, part in use.split(before.settings, slots).items():
        was = before.lanes[lane].slots
        yield f"  {lane.value:<10}{'unbounded' if was is None else was} -> {part} at once"
    yield f"  ticks plan with {slots} from the next one on; the learned rate of its upstream stays what it is"
    if word.slots is not None:
        yield "  a deployment leaves it alone, unless it changes slots, live_share or batch_size"
    else:
        yield "  that is what is configured: nothing is overridden any more"
    yield f'  undo: python -m ops concurrency {name} --back --reason "..."'
