"""`rate CLASS PER_S` and `rate CLASS --clear`: an upper bound of a class's rate, until it expires or is cleared."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ops.access import Access
from ops.commands.choice import caller, class_named
from ops.commands.status import override_in_words
from shared.core.overrides import RateOverride
from shared.errors import InvalidInput
from shared.usecases import operate


@click.command(short_help="Bound the rate of a class.", context_settings={"ignore_unknown_options": True})
@click.argument("job_class", metavar="CLASS")
@click.argument("per_s", metavar="[PER_S]", type=float, required=False)
@click.option("--reason", help="Why, for whoever comes later.")
@click.option("--for", "for_minutes", type=float, metavar="MINUTES", help="Until when; by default until --clear.")
@click.option("--clear", is_flag=True, help="Take the bound away.")
@click.option("--by", help="Who you are; by default the user of the operating system.")
@click.option("--json", "as_json", is_flag=True, help="Print what was changed as JSON.")
@click.pass_obj
def rate(
    access: Access,
    *,
    job_class: str,
    per_s: float | None,
    reason: str | None,
    for_minutes: float | None,
    clear: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Admit at most PER_S jobs per second of CLASS, from its next tick on. What its upstream and its slots allow still
    holds, so that a bound above that does nothing. Pauses and resumes leave it as it is.

    \b
    Examples
      python -m ops rate replay_summary 2.5 --for 120 --reason "the provider is in maintenance until noon"
      python -m ops rate replay_summary --clear
    """
    name = class_named(access.settings(), job_class).name
    if clear == (per_s is not None):
        raise InvalidInput("PER_S", got="both" if clear else "nothing", expected="a rate, or --clear instead of it")
    ports = access.ports()
    if per_s is None:
        _say(name, operate.clear_rate(ports, name), cleared=True, as_json=as_json)
        return
    for_s = None if for_minutes is None else for_minutes * 60
    override = operate.set_rate(ports, name, per_s, by=caller(by), why=reason or "", for_s=for_s)
    _say(name, override, cleared=False, as_json=as_json)


def _say(name: str, override: RateOverride | None, *, cleared: bool, as_json: bool) -> None:
    if as_json:
        said = None if override is None else asdict(override)
        change = {"rate_override": None, "was": said} if cleared else {"rate_override": said}
        click.echo(json.dumps({"job_class": name, **change}, ensure_ascii=False))
    elif override is None:
        click.echo(f"{name}: its rate was not bound.")
    elif cleared:
        click.echo(f"{name}: no bound any more; it was {override_in_words(override)}")
    else:
        click.echo(f"{name}: {override_in_words(override)}\n  undo: python -m ops rate {name} --clear")
