"""`guard`: refuse a deployment that takes a class away while it still has rows."""

from __future__ import annotations

import click

from ops.access import Access
from ops.commands.options import answer
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
    configured, deployed = access.settings().classes, access.deployed_classes()
    removed = removed_classes(access.ports(), deployed=deployed, configured=configured)
    held = [goes for goes in removed if not goes.is_empty]
    for goes in held:
        click.echo(f"error: {refusal(goes)}", err=True)
    names = ", ".join(goes.name for goes in removed)
    if as_json or not held:
        verdict = f"Removed and empty: {names}." if names else "No class is removed."
        answer(as_json, {"removed": removed, "refused": bool(held)}, [verdict])
    click.get_current_context().exit(1 if held else 0)


def refusal(removed: RemovedClass) -> str:
    rows = f"{removed.open_rows:,} unfinished and {removed.dead_rows:,} dead rows"
    return (
        f"classes.{removed.name}: got no such table in the configuration and {rows} in the ledger, expected the class"
        " to stay until it has none: put it back, let it drain, and remove it then. A renamed class is a removed one."
    )
