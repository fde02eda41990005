"""`webhook close|open [CLASS]`: whether the public webhook may admit runs."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ops.access import Access
from ops.commands.choice import caller, class_named
from shared.core.flags import Flag
from shared.core.settings import Settings
from shared.errors import InvalidInput
from shared.usecases import operate


@click.group(short_help="Close the public webhook, or open it again.")
def webhook() -> None:
    """Revoke what the webhook may do, at once and without touching pacer or workers: schedules tick on."""


@webhook.command(short_help="Admit no more runs from outside.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@click.option("--reason", required=True, help="Why, for whoever finds the webhook closed.")
@click.option("--by", help="Who you are; by default the user of the operating system.")
@click.option("--json", "as_json", is_flag=True, help="Print the closed classes as JSON.")
@click.pass_obj
def close(access: Access, *, job_class: str | None, reason: str, by: str | None, as_json: bool) -> None:
    """Refuse every request for CLASS (all classes that are open to the webhook) from now on, with 409 "closed".

    A request that was being admitted at this moment leaves a run that its tick closes as skipped. What is in flight
    settles, and a class that has a schedule of runs of its own goes on.

    \b
    Example
      python -m ops webhook close --reason "the CI token was printed in a log"
    """
    names = _classes(access.settings(), job_class)
    flag = operate.switch_webhook(access.ports(), names, closed=True, by=caller(by), why=reason)
    _say(names, flag, closed=True, as_json=as_json)


@webhook.command(name="open", short_help="Let runs in from outside again.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@click.option("--reason", required=True, help="Why, for whoever asks later.")
@click.option("--by", help="Who you are; by default the user of the operating system.")
@click.option("--json", "as_json", is_flag=True, help="Print the opened classes as JSON.")
@click.pass_obj
def open_(access: Access, *, job_class: str | None, reason: str, by: str | None, as_json: bool) -> None:
    """Let the webhook admit runs of CLASS (all classes that are open to it) again.

    \b
    Example
      python -m ops webhook open --reason "the secret was rotated"
    """
    names = _classes(access.settings(), job_class)
    flag = operate.switch_webhook(access.ports(), names, closed=False, by=caller(by), why=reason)
    _say(names, flag, closed=False, as_json=as_json)


def _classes(settings: Settings, name: str | None) -> list[str]:
    names = sorted(settings.webhook_classes) if name is None else [class_named(settings, name).name]
    if not settings.webhook_classes.issuperset(names) or not names:
        raise InvalidInput("CLASS", got="a class without the webhook", expected="webhook = true in the configuration")
    return names


def _say(names: list[str], flag: Flag, *, closed: bool, as_json: bool) -> None:
    if as_json:
        switched = {"classes": names, "webhook_closed": closed, "webhook_switched": asdict(flag)}
        click.echo(json.dumps(switched, ensure_ascii=False))
        return
    for name in names:
        click.echo(f"{name}: webhook {'closed' if closed else 'opened'} by {flag.by}: {flag.why}")
