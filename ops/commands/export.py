"""`export --out FILE`: the ledger as JSON lines, for another deployment or the simulator to go on from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.options import INTERRUPTED, answer, class_named
from ops.long_run import meter_for
from ops.submission.json_lines import Lines
from ops.submission.source import PIPE
from ops.transfer.export import Asked, Export, PartFile, Pipe
from ops.transfer.format import LineCounts
from ops.transfer.reading import Reader
from ops.wording import counted, plain
from shared.domain.settings import Settings
from shared.errors import InvalidInput


@click.command(short_help="Write the ledger to a file.")
@click.option("--out", required=True, metavar="FILE|-", help="A new file, or - for standard output.")
@click.option("--class", "names", multiple=True, metavar="CLASS", help="One class, or several; by default all.")
@click.option("--live", is_flag=True, help="Although jobs move: each row is then as of some moment of the export.")
@click.option("--with-payloads", is_flag=True, help="Large payloads too, not just the keys of their objects.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, on standard error where --out is -.")
@click.pass_obj
def export(access: Access, *, out: str, names: Sequence[str], live: bool, with_payloads: bool, as_json: bool) -> None:
    """Write every job with its outputs, the runs of the last day, what control remembers and what was learned of the
    upstreams to FILE, as JSON lines. The classes must be paused or halted, with nothing in flight; then the file is
    exact, and `import` goes on from it.

    Interrupted, it goes on with the same command. FILE is there once it is whole; until then it is FILE.part. It holds
    ids and payloads, and only its owner may read it.

    \b
    Examples
      python -m ops halt replay_summary --reason "moves to the new account"
      python -m ops export --class replay_summary --out ledger.jsonl
      python -m ops export --class replay_summary --live --out - | gzip > ledger.jsonl.gz
    """
    settings = access.settings()
    classes = tuple(dict.fromkeys(class_named(settings, name).name for name in names)) or tuple(settings.classes)
    sink = Pipe(sys.stdout.buffer) if out == PIPE else PartFile(Path(out), check=partial(_read_back, settings=settings))
    asked = Asked(classes=classes, live=live, payloads=with_payloads)
    run = Export(access.ports(), settings, access.ledger_copy(), asked, meter_for(sys.stderr))
    try:
        counts = run.run(sink)
    except KeyboardInterrupt:
        click.echo("Interrupted." if out == PIPE else "Interrupted. Run the same command again to go on.", err=True)
        click.get_current_context().exit(INTERRUPTED)
    figures = {"file": out, "live": live, "resumed": run.resumed, "left_out": run.left_out, "classes": list(classes)}
    answer(as_json, figures | to_builtins(counts), [_in_words(out, counts, run, live=live)], err=out == PIPE)


def _read_back(path: Path, *, settings: Settings) -> None:
    """A file that `import` would refuse is found out now, while the ledger is still there."""
    with path.open("rb") as stream:
        for number, record in Reader(Lines(stream), settings):
            if isinstance(record, InvalidInput):
                raise InvalidInput(f"line {number}: {record.field}", got=record.got, expected=record.expected)


def _in_words(out: str, counts: LineCounts, run: Export, *, live: bool) -> str:
    name = "standard output" if out == PIPE else plain(out)
    outputs, runs = counted(counts.output, "output"), counted(counts.run, "run")
    payloads = counted(counts.payload, "large payload")
    exact = "each row as of some moment of the export" if live else "exact: nothing moved meanwhile"
    if run.left_out:
        exact = f"without {counted(run.left_out, 'job')} that joined an ordered match meanwhile and is nowhere but here"
    return f"{name}: {counted(counts.job, 'job')}, {outputs}, {runs}, {payloads}; {exact}"
