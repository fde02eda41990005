"""`replay FILE`: drain a recorded day in the virtual world, against a fake limiter, with workers that are killed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins
from msgspec.structs import replace

from ops.commands.options import check_out, write_out
from ops.simulator.recording import Columns, Recording, read_recording
from ops.simulator.replay import CHUNK_TOKENS, KILLS_PER_MINUTE, Bill, Options, Replay
from ops.simulator.result import Result
from shared.errors import InvalidInput
from shared.pacer.cost import PRICES, Prices

_MOST_PER_S = 10_000.0
"""The simulator makes every call one by one: beyond so many a second nobody would wait for the end."""


@click.command(short_help="Drain a recorded day in the simulator.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--time", "time_column", required=True, metavar="COLUMN", help="When a job came.")
@click.option("--tokens", metavar="IN[,OUT]", help="How much goes into the upstream, and how much comes out.")
@click.option("--match", metavar="COLUMN", help="The match of a job; without it every job is a match of its own.")
@click.option(
    "--limit", "limit_per_s", type=float, required=True, metavar="PER_S", help="Calls that the upstream allows."
)
@click.option("--kills", is_flag=True, help="Kill workers at random moments, three a minute.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same run.")
@click.option("--slots", type=click.IntRange(4, 10_000), help="Concurrent workers; by default what the limit needs.")
@click.option(
    "--chunk-tokens", type=click.IntRange(1, 10_000_000), default=CHUNK_TOKENS, show_default=True, help="Of one call."
)
@click.option("--token-prices", metavar="IN,OUT", help="US dollars per million tokens; without it they cost nothing.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the result with its ticks, for `report`.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def replay(
    *,
    file: Path,
    time_column: str,
    tokens: str | None,
    match: str | None,
    limit_per_s: float,
    kills: bool,
    seed: int,
    slots: int | None,
    chunk_tokens: int,
    token_prices: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Drain the jobs that FILE has recorded, each coming at its own time, in virtual time: an hour takes seconds.

    FILE is CSV (.csv, .tsv) with a header, or JSON lines; a dot leads into an object. Every
    row is a job. A missing or unreadable time is refused with its line and column; rows out of order are sorted, and
    equal times all kept, with a note.

    It is an error if a tick admits more than its budget, if a killed worker does not resume at the stored cursor, if
    an output is produced twice, or if a job is lost: exit code 1. A bad file or command line: 2.

    \b
    Examples
      python -m ops replay day.csv --time TIMESTAMP --tokens ContextTokens,GeneratedTokens --limit 8 --kills --seed 7
      python -m ops replay jobs.jsonl --time due --match match_id --limit 20 --json
    """
    if not 0 < limit_per_s <= _MOST_PER_S:
        raise InvalidInput("--limit", got="a number out of range", expected=f"above 0, at most {_MOST_PER_S:g}")
    check_out(out)
    options = Options(
        limit_per_s=limit_per_s,
        kills_per_minute=KILLS_PER_MINUTE if kills else 0.0,
        slots=slots,
        chunk_tokens=chunk_tokens,
        prices=_prices(token_prices),
    )
    recording = read_recording(file, Columns(time=time_column, tokens=_columns(tokens), match=match))
    began_s = time.perf_counter()
    run = Replay(recording, options, seed)
    run.run()
    result, bill = run.finish(), run.bill()
    result.figures.wall_s = time.perf_counter() - began_s
    figures = as_figures(result, bill, recording)
    write_out(out, figures | {"series": result.series})
    click.echo(json.dumps(figures, ensure_ascii=False) if as_json else "\n".join(in_words(result, bill, recording)))
    click.get_current_context().exit(0 if result.passed else 1)


def _columns(tokens: str | None) -> tuple[str, ...]:
    columns = tuple(part.strip() for part in tokens.split(",")) if tokens is not None else ()
    if not all(columns) or len(columns) > 2 or len(set(columns)) < len(columns):
        raise InvalidInput("--tokens", got="other text", expected="one column, or two with a comma between them")
    return columns


def _prices(text: str | None) -> Prices:
    """The table's, with what the operator says of tokens."""
    if text is None:
        return PRICES
    try:
        input_usd, output_usd = (float(part) for part in text.split(","))
    except ValueError:
        input_usd = output_usd = -1.0
    if not all(0 <= price < math.inf for price in (input_usd, output_usd)):
        raise InvalidInput("--token-prices", got="other text", expected="two numbers, like 0.15,0.60")
    return replace(PRICES, input_token_usd=input_usd / 1e6, output_token_usd=output_usd / 1e6)


def as_figures(result: Result, bill: Bill, recording: Recording) -> dict[str, Any]:
    """The stable keys first; `cost` splits the waste out, `recording` says what was replayed."""
    done = max(1, result.figures.done)
    cost: dict[str, Any] = {
        "prices_as_of": PRICES.as_of,
        "total_usd": bill.total_usd,
        "per_job_usd": bill.total_usd / done,
        "useful_per_job_usd": bill.useful_usd / done,
        "refused_per_job_usd": bill.refused_usd / done,
        "repeated_per_job_usd": bill.repeated_usd / done,
    }
    rest = {name: value for name, value in to_builtins(bill).items() if not name.endswith("_usd")}
    about = {
        "rows": len(recording.rows),
        "span_s": recording.span_s,
        "out_of_order": recording.out_of_order,
        "same_time": recording.same_time,
        "notes": list(recording.notes),
    }
    rounded = {
        name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in (cost | rest).items()
    }
    return result.json() | {"cost": rounded, "recording": about}


def in_words(result: Result, bill: Bill, recording: Recording) -> Iterator[str]:
    figures, done = result.figures, max(1, result.figures.done)
    yield f"{recording.name}: {figures.jobs:,} jobs in {recording.span_s:,.0f} s, seed {figures.seed}"
    yield from (f"  note      {note}" for note in recording.notes)
    drained = "not drained" if figures.drain_s is None else f"drained after {figures.drain_s:,.0f} s"
    yield f"  drain     {drained}, at best {figures.ideal_drain_s:,.0f} s; {figures.done:,} done, {figures.dead:,} dead"
    used = f"{figures.utilisation or 0:.1%} of its limit used"
    yield f"  upstream  {figures.upstream_calls:,} calls, {figures.refusals:,} refused; {used}"
    yield (
        f"  kills     {figures.crashes:,} workers killed, {bill.repeated_chunks:,} chunks begun again, "
        f"{bill.resumed_jobs:,} jobs resumed at their cursor, {figures.redone_chunks} committed chunks redone"
    )
    yield (
        f"  cost      {bill.total_usd / done:.3g} USD a job (prices of {PRICES.as_of}); of it refused "
        f"{bill.refused_usd / done:.2g}, repeated {bill.repeated_usd / done:.2g}"
    )
    held = result.said or result.failed
    yield f"  held      {'no: ' + '; '.join([*result.said[:3], *result.failed]) if held else 'every invariant'}"
