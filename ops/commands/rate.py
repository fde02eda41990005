"""`rate CLASS PER_S` and `rate CLASS --clear`: an upper bound of a class's rate, until it expires or is cleared."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ops.commands.options import Change, signed
from ops.commands.status import override_in_words
from ops.wording import signature
from shared.domain.control import RateOverride
from shared.errors import InvalidInput
from shared.operate import switches


@click.command(short_help="Bound the rate of a class.", context_settings={"ignore_unknown_options": True})
@click.argument("job_class", metavar="CLASS")
@click.argument("per_s", metavar="[PER_S]", type=float, required=False)
@click.option("--for", "for_minutes", type=float, metavar="MINUTES", help="Until when; by default until --clear.")
@click.option("--clear", is_flag=True, help="Take the bound away.")
@signed
def rate(change: Change, *, job_class: str, per_s: float | None, for_minutes: float | None, clear: bool) -> None:
    """Admit at most PER_S jobs per second of CLASS, from its next tick on. What its upstream and its slots allow still
    holds, so that a bound above that does nothing. Pauses and resumes leave it as it is, deployments too.

    \b
    Examples
      python -m ops rate replay_summary 2.5 --for 120 --reason "the provider is in maintenance until noon"
      python -m ops rate replay_summary --clear --reason "the maintenance is over"
    """
    name = change.class_named(job_class).name
    if clear == (per_s is not None):
        raise InvalidInput("PER_S", got="both" if clear else "nothing", expected="a rate, or --clear instead of it")
    ports, for_s = change.ports, None if for_minutes is None else for_minutes * 60
    override = switches.rate_override(ports, per_s, by=change.who, why=change.why, for_s=for_s)
    before = ports.ledger.read_control(name).rate
    was = before if before is not None and before.holds(override.flag.at_ms) else None
    if not change.dry_run:
        switches.set_rate(ports, name, override)
    figures = {
        "job_class": name,
        "dry_run": change.dry_run,
        "rate_override": None if per_s is None else override,
        "was": was,
        "changed": override.flag,
    }
    change.answer(figures, _lines(name, override, was))


def _lines(name: str, override: RateOverride, was: RateOverride | None) -> Iterator[str]:
    if override.rate_per_s is not None:
        yield f"{name}: {override_in_words(override)}"
        yield "  from its next tick on; what upstream and slots allow still holds"
    elif was is None:
        yield f"{name}: its rate was not bound."
        return
    else:
        yield f"{name}: no bound any more, by {signature(override.flag)}"
    if was is not None:
        yield f"  it was {override_in_words(was)}"
    yield f'  undo: python -m ops rate {name} {_arguments(was, override.flag.at_ms)} --reason "..."'


def _arguments(override: RateOverride | None, now_ms: int) -> str:
    """What sets this bound again."""
    if override is None:
        return "--clear"
    left = "" if override.until_ms is None else f" --for {(override.until_ms - now_ms) / 60_000:.1f}"
    return f"{override.rate_per_s:g}{left}"
