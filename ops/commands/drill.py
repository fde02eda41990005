"""`drill CLASS`: try on a deployment what is promised of it, with jobs of the drill's own, and report."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.options import caller, class_named
from ops.drill.conduct import Part, Step, Work, backlog, conduct
from ops.drill.ground import Ground
from ops.drill.restoring import restore
from ops.drill.running import LONG_S
from shared.domain.json_text import json_fault
from shared.errors import InvalidInput

FAILED: Final = 1

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
    "--only", "parts", multiple=True, type=click.Choice([each.value for each in Part]), help="One part, or several."
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
    ground = _ground(access, job_class, asked["reason"], asked["by"], asked["payload"])
    parts = frozenset(map(Part, asked["parts"])) or frozenset(Part)
    restored = _restore(access, ground, restoring=asked["restoring"], into=asked["into"], parts=parts)
    _check_class(ground, force=asked["force"], restoring=asked["restoring"])
    if not yes:
        click.confirm(_WARNING.format(name=ground.name), abort=True, err=True)
    steps = []
    for step in conduct(ground, parts, restored):
        steps.append(step)
        if not as_json:
            click.echo(_line(step))
    click.get_current_context().exit(_ended(ground, steps, as_json=as_json))


def _ended(ground: Ground, steps: Sequence[Step], *, as_json: bool) -> int:
    ok = all(step.ok for step in steps)
    if as_json:
        report = {"job_class": ground.name, "kind": ground.job_class.kind, "ok": ok}
        click.echo(json.dumps(report | {"steps": [to_builtins(step) for step in steps]}, ensure_ascii=False))
    else:
        click.echo(f"{ground.name}: {'all of it holds' if ok else 'it does NOT all hold'}")
    return 0 if ok else FAILED


def _ground(access: Access, name: str, reason: str, by: str | None, payload: Path | None) -> Ground:
    job_class = class_named(access.settings(), name)
    if not reason.strip():
        raise InvalidInput("--reason", got="an empty string", expected="why the drill is held")
    nonce = uuid.uuid4().hex[:8]
    ground = Ground(
        ports=access.ports(),
        settings=access.settings(),
        job_class=job_class,
        pacer=access.pacer(),
        mappings=access.mappings(),
        nonce=nonce,
        by=caller(access, by),
        why=f"drill {nonce}: {reason}",
        payload="" if payload is None else _read(payload),
    )
    if payload is None and not ground.has_own_kind:
        raise InvalidInput(
            "--payload", got="nothing", expected="a file with a harmless payload, or a class of kind drill"
        )
    return ground


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, ValueError):
        raise InvalidInput("--payload", got="no text", expected="a file with a JSON value") from None
    fault = json_fault(text)
    if fault is not None:
        raise InvalidInput("--payload", got=fault, expected="a JSON value")
    return text


def _check_class(ground: Ground, *, force: bool, restoring: bool) -> None:
    if ground.has_own_kind and ground.job_class.function_timeout_s < LONG_S * 3 / 2:
        expected = f"at least {LONG_S * 3 / 2:g}: the drill's jobs are met in their middle"
        raise InvalidInput("function_timeout_s", got=f"{ground.job_class.function_timeout_s}", expected=expected)
    if not ground.ports.ledger.read_control(ground.name).admits:
        raise InvalidInput("CLASS", got="a class that is paused or halted", expected="one that runs")
    rows = backlog(ground)
    if rows and restoring:
        raise InvalidInput("CLASS", got=f"{rows} rows of its own", expected="none: they would be drained twice")
    if rows and not force:
        raise InvalidInput("CLASS", got=f"{rows} rows of its own", expected="none, or --force: they are paused as well")


def _restore(
    access: Access, ground: Ground, *, restoring: bool, into: Path | None, parts: frozenset[Part]
) -> Work | None:
    if into is not None and not restoring:
        raise InvalidInput("--into", got="no --restore", expected="both")
    if not restoring:
        return None
    if Part.STOP not in parts:
        raise InvalidInput("--restore", got="a drill without its stop", expected="--only stop, or all of it")
    if into is None:
        return partial(restore, copy=access.ledger_copy(), other=None, other_copy=None)
    there = access.beside(into)
    other: dict[str, Any] = {"ports": there.ports(), "pacer": there.pacer(), "mappings": there.mappings()}
    return partial(restore, copy=access.ledger_copy(), other=_with(ground, other), other_copy=there.ledger_copy())


def _with(ground: Ground, other: dict[str, Any]) -> Ground:
    same = {name: getattr(ground, name) for name in ("settings", "job_class", "nonce", "by", "why", "payload")}
    return Ground(**same, **other)


def _line(step: Step) -> str:
    return f"{'ok  ' if step.ok else 'FAIL'}  {step.name:<27} {step.seconds:>6.0f} s  {step.found}"
