"""`webhook close|open [CLASS]`: whether the public webhook may admit runs."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ops.access import Access
from ops.commands.choice import caller, class_named, signed
from ops.wording import plain
from shared.core.settings import Settings
from shared.errors import InvalidInput
from shared.usecases import operate


@click.group(short_help="Close the public webhook, or open it again.")
def webhook() -> None:
    """Revoke what the webhook may do, at once and without touching pacer or workers: schedules tick on.

    \b
    Example
      python -m ops webhook close --reason "the CI token was printed in a log"
    """


@webhook.command(short_help="Admit no more runs from outside.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@signed
@click.pass_obj
def close(access: Access, *, job_class: str | None, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """Refuse every request for CLASS (all classes that are open to the webhook) from now on, with 409 "closed".

    A request that was being admitted at this moment leaves a run that its tick closes as skipped. What is in flight
    settles, and a class that has a schedule of runs of its own goes on.

    \b
    Example
      python -m ops webhook close --reason "the CI token was printed in a log"
    """
    _switch(access, job_class, reason, by, closed=True, dry_run=dry_run, as_json=as_json)


@webhook.command(name="open", short_help="Let runs in from outside again.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@signed
@click.pass_obj
def open_(access: Access, *, job_class: str | None, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """Let the webhook admit runs of CLASS (all classes that are open to it) again.

    \b
    Example
      python -m ops webhook open --reason "the secret was rotated"
    """
    _switch(access, job_class, reason, by, closed=False, dry_run=dry_run, as_json=as_json)


def _switch(
    access: Access,
    job_class: str | None,
    reason: str,
    by: str | None,
    *,
    closed: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    names = _classes(access.settings(), job_class)
    ports, who = access.ports(), caller(access, by)
    if dry_run:
        flag = operate.flag(ports, who, reason, expected="why the webhook is switched")
    else:
        flag = operate.switch_webhook(ports, names, closed=closed, by=who, why=reason)
    if as_json:
        switched = {"classes": names, "webhook_closed": closed, "webhook_switched": asdict(flag)}
        click.echo(json.dumps({"dry_run": dry_run, **switched}, ensure_ascii=False))
        return
    if dry_run:
        click.echo("Dry run, nothing was changed.")
    other = "open" if closed else "close"
    for name in names:
        click.echo(f"{name}: webhook {'closed' if closed else 'opened'} by {flag.by}: {plain(flag.why)}")
        click.echo(f'  undo: python -m ops webhook {other} {name} --reason "..."')


def _classes(settings: Settings, name: str | None) -> list[str]:
    names = sorted(settings.webhook_classes) if name is None else [class_named(settings, name).name]
    if not settings.webhook_classes.issuperset(names) or not names:
        raise InvalidInput("CLASS", got="a class without the webhook", expected="webhook = true in the configuration")
    return names
