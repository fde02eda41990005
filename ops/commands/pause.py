"""`pause CLASS`: stop admission, and return when nothing more can be admitted."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ops.access import Access
from ops.commands.choice import caller, class_named
from shared.usecases import operate


@click.command(short_help="Stop admission of a class.")
@click.argument("job_class", metavar="CLASS")
@click.option("--reason", required=True, help="Why, for whoever finds the class paused.")
@click.option("--by", help="Who you are; by default the user of the operating system.")
@click.option("--json", "as_json", is_flag=True, help="Print the pause as JSON.")
@click.pass_obj
def pause(access: Access, *, job_class: str, reason: str, by: str | None, as_json: bool) -> None:
    """Admit nothing more of CLASS. What is in flight settles, delayed retries stay, deployments change nothing.

    The command returns when the pause is committed: until then a tick that began before it may still be claiming,
    which takes seconds, and at most as long as a tick.

    \b
    Example
      python -m ops pause replay_summary --reason "the upstream answers nonsense"
    """
    settings = class_named(access.settings(), job_class)
    who = caller(by)
    if not as_json:
        click.echo("Waiting until no tick can admit any more ...", err=True)
    flag = operate.pause(access.ports(), settings.name, by=who, why=reason)
    if as_json:
        click.echo(json.dumps({"job_class": settings.name, "pause": asdict(flag)}, ensure_ascii=False))
    else:
        click.echo(f"{settings.name}: paused by {flag.by}: {flag.why}")
        click.echo(f"  python -m ops resume {settings.name}")
