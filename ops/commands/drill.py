"""`drill CLASS`: try on a deployment what is promised of it, with jobs of the drill's own, and report."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from ops.access import Access
from ops.commands.options import FAILED, answer, caller, class_named, read_text
from ops.drill.site import Site
from ops.drill.steps import LONG_S, Part, Step, Work, backlog, conduct, restore
from shared.domain.json_text import json_fault
from shared.errors import InvalidInput

_WARNING: Final = (
    "{name} is paused and resumed, its workers are halved for a moment, and about 15 jobs of the drill's own run in it."
    " Go on?"
)


@click.command(short_help="Try on a deployment what is promised of it.")
@click.argument("job_class", metavar="CLASS")
@click.option("--reason", required=True, help="Why, for whoever finds the class paused.")
@click.option("--by", help="Your name, recorded with your AWS identity.")
@click.option("--payload", type=click.Path(path_type=Path), help="What a job of CLASS carries, if its kind is another.")
@click.option(
    "--only", "parts", multiple=True, type=click.Choice([part.value for part in Part]), help="One part, or several."
)
@click.option("--restore", "restoring", is_flag=True, help="Export what waits, and drain it in an empty ledger, too.")
@click.option("--into", type=click.Path(path_type=Path), help="With --restore: the outputs file of that deployment.")
@click.option("--force", is_flag=True, help="Although CLASS has a backlog, which is then paused as well.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_obj
def drill(access: Access, /, *, job_class: str, yes: bool, as_json: bool, **asked: Any) -> None:
    """The rollback drill. In CLASS, with jobs of its own (drill-...):

    \b
      run      one minute asked for three times is one run
      effect   stale messages beside a running job and after its end do nothing; with the drill's own kind a
               worker dies between a commit and its acknowledgement, and its job goes on at the cursor
      stop     a pause admits nothing and loses nothing; fewer workers and back; resume, and everything drains

    It takes some minutes, and leaves the class as it was, also when it fails. A class of `kind = "drill"` in
    sluice.toml can do all of it and touches nothing; any other class needs --payload with something harmless.

    With --restore the class's rows are exported while it is paused, and drained in the simulator, or with --into in
    another deployment whose ledger has none of them.

    \b
    Examples
      python -m ops drill drill --reason "before the release"
      python -m ops drill replay_summary --payload harmless.json --restore --reason "quarterly" --json

    \b
    Exit codes
      0    all of it holds
      1    a step failed: the report says which, and what was found
      2    the drill was not begun
    """
    site = _site(access, job_class, asked["reason"], asked["by"], asked["payload"])
    parts = frozenset(map(Part, asked["parts"])) or frozenset(Part)
    restoring = _restoring(access, site, asked=asked["restoring"], into=asked["into"], parts=parts)
    _check_class(site, force=asked["force"], restoring=asked["restoring"])
    if not yes:
        click.confirm(_WARNING.format(name=site.name), abort=True, err=True)
    steps = []
    for step in conduct(site, parts, restoring):
        steps.append(step)
        if not as_json:
            click.echo(_line(step))
    ok = all(step.ok for step in steps)
    figures = {"job_class": site.name, "kind": site.job_class.kind, "ok": ok, "steps": steps}
    answer(as_json, figures, [f"{site.name}: {'all of it holds' if ok else 'it does NOT all hold'}"])
    click.get_current_context().exit(0 if ok else FAILED)


def _site(access: Access, name: str, reason: str, by: str | None, payload: Path | None) -> Site:
    job_class = class_named(access.settings(), name)
    if not reason.strip():
        raise InvalidInput("--reason", got="an empty string", expected="why the drill is held")
    nonce = uuid.uuid4().hex[:8]
    site = Site(
        ports=access.ports(),
        settings=access.settings(),
        job_class=job_class,
        pacer=access.pacer(),
        mappings=access.mappings(),
        nonce=nonce,
        by=caller(access, by),
        why=f"drill {nonce}: {reason}",
        payload="" if payload is None else _payload_of(payload),
    )
    if payload is None and not site.has_own_kind:
        expected = "a file with a harmless payload, or a class of kind drill"
        raise InvalidInput("--payload", got="nothing", expected=expected)
    return site


def _payload_of(path: Path) -> str:
    text = read_text(str(path), "--payload", expected="a JSON value").strip()
    fault = json_fault(text)
    if fault is not None:
        raise InvalidInput("--payload", got=fault, expected="a JSON value")
    return text


def _check_class(site: Site, *, force: bool, restoring: bool) -> None:
    if site.has_own_kind and site.job_class.function_timeout_s < LONG_S * 3 / 2:
        expected = f"at least {LONG_S * 3 / 2:g}: the drill's jobs are met in their middle"
        raise InvalidInput("function_timeout_s", got=f"{site.job_class.function_timeout_s}", expected=expected)
    if not site.ports.ledger.read_control(site.name).admits:
        raise InvalidInput("CLASS", got="a class that is paused or halted", expected="one that runs")
    rows = backlog(site)
    if rows and restoring:
        raise InvalidInput("CLASS", got=f"{rows} rows of its own", expected="none: they would be drained twice")
    if rows and not force:
        raise InvalidInput("CLASS", got=f"{rows} rows of its own", expected="none, or --force: they are paused as well")


def _restoring(access: Access, site: Site, *, asked: bool, into: Path | None, parts: frozenset[Part]) -> Work | None:
    if into is not None and not asked:
        raise InvalidInput("--into", got="no --restore", expected="both")
    if not asked:
        return None
    if Part.STOP not in parts:
        raise InvalidInput("--restore", got="a drill without its stop", expected="--only stop, or all of it")
    if into is None:
        return partial(restore, copy=access.ledger_copy(), other=None, other_copy=None)
    there = access.beside(into)
    other = replace(site, ports=there.ports(), pacer=there.pacer(), mappings=there.mappings(), job_ids=[])
    return partial(restore, copy=access.ledger_copy(), other=other, other_copy=there.ledger_copy())


def _line(step: Step) -> str:
    return f"{'ok  ' if step.ok else 'FAIL'}  {step.name:<27} {step.seconds:>6.0f} s  {step.found}"
