"""`guard`: refuse a deployment that takes a class away while it still has rows."""

from __future__ import annotations

import json

import click
from msgspec import to_builtins

from ops.access import Access
from shared.operate.status import RemovedClass, removed_classes


@click.command(short_help="Refuse to deploy while a removed class has rows.")
@click.option("--json", "as_json", is_flag=True, help="Print the removed classes and their rows as JSON.")
@click.pass_obj
def guard(access: Access, *, as_json: bool) -> None:
    """Run it before `cdk deploy`, with the outputs of the deployment that is there now.

    A class that this deployment has and the configuration does not would lose its queues, its worker and its ticks;
    its rows would wait for nobody. A renamed class is a removed one and a new one. Synth cannot know this: it has no
    network.

    \b
    Example
      python -m ops --outputs outputs.json guard && npx cdk deploy --all --outputs-file outputs.json

    \b
    Exit codes
      0    every class that goes is empty
      1    a class that goes still has rows
    """
    settings = access.settings()
    found = removed_classes(access.ports(), deployed=access.deployed_classes(), configured=settings.classes)
    held = [each for each in found if not each.is_empty]
    if as_json:
        click.echo(json.dumps({"removed": [to_builtins(each) for each in found], "refused": bool(held)}))
    for each in held:
        click.echo(f"error: {refusal(each)}", err=True)
    if not held and not as_json:
        gone = ", ".join(each.name for each in found)
        click.echo(f"Removed and empty: {gone}." if gone else "No class is removed.")
    click.get_current_context().exit(1 if held else 0)


def refusal(removed: RemovedClass) -> str:
    rows = f"{removed.open_rows:,} unfinished and {removed.dead_rows:,} dead rows"
    return (
        f"classes.{removed.name}: got no such table in the configuration and {rows} in the ledger, expected the class"
        " to stay until it has none: put it back, let it drain, and remove it then. A renamed class is a removed one."
    )
