"""`resume CLASS`: let the next tick admit again."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ops.access import Access
from ops.commands.choice import class_named
from shared.usecases import operate


@click.command(short_help="Let a paused class be admitted again.")
@click.argument("job_class", metavar="CLASS")
@click.option("--json", "as_json", is_flag=True, help="Print the pause that ended as JSON.")
@click.pass_obj
def resume(access: Access, *, job_class: str, as_json: bool) -> None:
    """End the pause of CLASS: its next tick admits again. Nothing was forgotten, and no time was earned meanwhile.

    \b
    Example
      python -m ops resume replay_summary
    """
    settings = class_named(access.settings(), job_class)
    ports = access.ports()
    ended = ports.ledger.read_control(settings.name).pause
    operate.resume(ports, settings.name)
    if as_json:
        was = None if ended is None else asdict(ended)
        click.echo(json.dumps({"job_class": settings.name, "pause": None, "was": was}, ensure_ascii=False))
    elif ended is None:
        click.echo(f"{settings.name}: was not paused.")
    else:
        click.echo(f"{settings.name}: resumed. It was paused by {ended.by}: {ended.why}")
