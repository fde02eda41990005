"""`submit FILE`: put jobs into the ledger from JSON lines or CSV."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from typing import Any

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.options import FAILED, INTERRUPTED, NO_ANSWER, answer
from ops.long_run import meter_for
from ops.submission.csv_rows import PART, CsvShape
from ops.submission.load import Outcome, Plan, Submission, Summary, in_words
from ops.submission.rows import FIELDS
from ops.submission.source import Format, format_of, opened
from shared.errors import InvalidInput

EXIT_CODES = {
    Outcome.COMPLETE: 0,
    Outcome.REFUSED: FAILED,
    Outcome.INTERRUPTED: INTERRUPTED,
    Outcome.UNAVAILABLE: NO_ANSWER,
}


@click.command(short_help="Submit jobs from JSON lines or CSV.")
@click.argument("file", metavar="FILE|-")
@click.option(
    "--format",
    "file_format",
    type=click.Choice([named.value for named in Format]),
    help="By default from the name: .csv and .tsv are CSV, the rest JSON lines.",
)
@click.option(
    "--map",
    "columns",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="CSV: which column a field is in. FIELD may be payload.KEY: the column becomes that key of the payload.",
)
@click.option("--delimiter", default=None, help="CSV: one character, or \\t. By default a comma; a tab for .tsv.")
@click.option("--job-class", help="The class of jobs that name none.")
@click.option("--strict", is_flag=True, help="Check everything first; with a bad line in it, submit nothing.")
@click.option(
    "--from-line", type=click.IntRange(min=1), default=1, show_default=True, help="Skip the lines before this one."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_obj
def submit(
    access: Access,
    *,
    file: str,
    file_format: str | None,
    columns: Sequence[str],
    delimiter: str | None,
    job_class: str | None,
    strict: bool,
    from_line: int,
    as_json: bool,
) -> None:
    """Submit the jobs in FILE, or on standard input where FILE is -.

    A job is known by its id: submitting it again adds nothing, so that a file may be submitted again after whatever
    happened. The same id with other contents is refused. Bad lines are reported and the good ones submitted, unless
    --strict is given. A line is an object with job_id, job_class, match_id, payload (any JSON) and, optionally, due
    (ISO 8601 with an offset) and priority.

    \b
    Examples
      python -m ops submit jobs.jsonl
      python -m ops submit matches.csv --job-class replay_summary \\
          --map job_id=id --map match_id=match --map payload.replay_key=object
      zcat jobs.jsonl.gz | python -m ops submit - --strict

    \b
    Exit codes
      0    every job is in the ledger, now or before
      1    some lines were refused; with --strict nothing was submitted
      2    the command line, the configuration or the file's form is wrong; nothing was submitted
      3    AWS did not answer; what was submitted stays, run it again
      130  interrupted; what was submitted stays, run it again
    """
    asked = format_of(file, None if file_format is None else Format(file_format))
    shape = CsvShape(columns=_columns(columns), delimiter=_delimiter(delimiter, file), default_class=job_class)
    plan = Plan(file_format=asked, shape=shape, strict=strict, from_line=from_line, nonce=uuid.uuid4().hex)
    submission = Submission(access.ports(), access.settings(), plan, meter_for(sys.stderr))
    with opened(file, rewindable=strict) as source:
        summary = submission.run(source)
        name = source.name
    answer(as_json, _figures(summary), in_words(summary, name=name))
    code = EXIT_CODES[summary.outcome] or int(summary.refused > 0)
    click.get_current_context().exit(code)


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        known = name in FIELDS or (name.startswith(PART) and name != PART)
        if not (known and equals and column):
            fields = ", ".join(FIELDS)
            raise InvalidInput(
                "--map", got="other text", expected=f"FIELD=COLUMN, FIELD one of {fields} or payload.KEY"
            )
        if name in columns:
            raise InvalidInput("--map", got=f"{name} twice", expected="each field once")
        columns[name] = column
    if "payload" in columns and any(name.startswith(PART) for name in columns):
        raise InvalidInput("--map", got="payload and parts of it", expected="one or the other")
    return columns


def _delimiter(asked: str | None, file: str) -> str:
    given = ("\t" if file.lower().endswith(".tsv") else ",") if asked is None else asked.replace("\\t", "\t")
    if len(given) != 1 or given in '"\r\n':
        raise InvalidInput("--delimiter", got=f"a string of {len(given)} characters", expected="one character, or \\t")
    return given


def _figures(summary: Summary) -> dict[str, Any]:
    refusals = [
        {"line": refusal.position, "field": refusal.field, "reason": refusal.reason} for refusal in summary.refusals
    ]
    figures: dict[str, Any] = to_builtins(summary)
    return {"jobs": summary.jobs} | figures | {"refusals": refusals}
