"""A recorded day drains within its budgets, and workers that are killed go on where they were."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from ops.cli import main
from ops.simulator.recording import Columns, Recorded, Recording, read_recording
from ops.simulator.replay import Bill, Options, Replay, shape_of
from ops.simulator.result import STABLE, Result
from shared.domain.job import State

HOUR = Path(__file__).resolve().parents[3] / "shared" / "data" / "llm-inference-hour.csv"


def recording(rows: int = 300, *, every_ms: int = 500, tokens: int = 3_000) -> Recording:
    return Recording(
        name="day",
        rows=tuple(
            Recorded(line=number + 2, at_us=number * every_ms * 1000, input_tokens=tokens, output_tokens=30)
            for number in range(rows)
        ),
    )


def replayed(options: Options, *, seed: int = 7) -> tuple[Replay, Result, Bill]:
    run = Replay(recording(), options, seed)
    run.run()
    return run, run.finish(), run.bill()


@cache
def with_kills() -> tuple[Replay, Result, Bill]:
    return replayed(Options(limit_per_s=5.0, kills_per_minute=20.0))


def test_every_row_is_a_job_and_every_job_ends() -> None:
    _, result, bill = replayed(Options(limit_per_s=5.0))

    assert (result.figures.jobs, result.figures.done, result.figures.lost) == (300, 300, 0)
    assert result.figures.upstream_calls == 900  # 3,000 tokens are three calls of at most 1,024
    assert (bill.refused_calls, bill.repeated_calls, bill.refused_usd, bill.repeated_usd) == (0, 0, 0, 0)
    assert result.passed, result.said


def test_no_tick_admits_more_than_its_budget() -> None:
    _, result, _ = with_kills()

    assert result.figures.over_budget_ticks == 0
    assert len(result.series) >= 3
    assert all(tick["admitted"] <= tick["budget"] for tick in result.series)


def test_a_killed_worker_resumes_at_the_stored_cursor_with_no_duplicate_output() -> None:
    run, result, bill = with_kills()

    assert result.figures.crashes >= 5, "the seed must kill somebody"
    assert bill.resumed_jobs >= 1, "and in the middle of a job"
    assert (result.figures.redone_chunks, result.figures.duplicate_effects) == (0, 0)
    for job_id, row in run.sluice.ledger.rows.items():
        assert row.job.state is State.DONE
        assert [output.cursor for output in run.sluice.ledger.outputs(job_id)] == ["", "1", "2"]


def test_the_cost_of_a_job_is_split_into_use_and_waste() -> None:
    _, result, bill = with_kills()

    assert bill.repeated_chunks >= 1
    assert 0 < bill.repeated_usd < bill.useful_usd
    assert bill.total_usd == pytest.approx(bill.useful_usd + bill.refused_usd + bill.repeated_usd)
    assert result.figures.cost_per_job_usd == pytest.approx(bill.total_usd / 300)


def test_one_seed_is_one_run_and_another_seed_another() -> None:
    options = Options(limit_per_s=5.0, kills_per_minute=20.0)

    assert replayed(options)[1].text() == with_kills()[1].text()
    assert replayed(options, seed=8)[1].text() != with_kills()[1].text()


def test_tokens_are_cut_into_calls_that_add_up() -> None:
    shape = shape_of(Recorded(line=2, at_us=0, input_tokens=2_500, output_tokens=8), chunk_tokens=1_024)

    assert shape.chunks == ((1_024, 3), (1_024, 3), (452, 2))
    assert shape_of(Recorded(line=2, at_us=0), chunk_tokens=1_024).chunks == ((0, 0),)


def test_rows_of_one_match_run_one_after_the_other() -> None:
    rows = tuple(Recorded(line=number + 2, at_us=0, match="m") for number in range(5))
    run = Replay(Recording(name="day", rows=rows), Options(limit_per_s=5.0), 1)
    run.run()

    assert len({row.job.match_id for row in run.sluice.ledger.rows.values()}) == 1
    assert run.finish().figures.done == 5


# -- the command


def command(*args: object) -> Any:
    return CliRunner().invoke(main, ["replay", *map(str, args)], catch_exceptions=False)


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path = tmp_path / "day.csv"
    path.write_text("at,in,out,game\n" + "".join(f"{number},1500,20,m{number % 7}\n" for number in range(60)))
    return path


def test_the_command_prints_the_stable_keys_and_writes_a_result_that_report_draws(day: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    options = ("--tokens", "in,out", "--match", "game", "--kills", "--seed", 3, "--token-prices", "0.15,0.6")
    answer = command(day, "--time", "at", "--limit", 4, *options, "--json", "--out", out)

    printed = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert set(STABLE) <= set(printed)
    assert (printed["jobs"], printed["done"], printed["seed"], printed["policy"]) == (60, 60, 3, "paced")
    assert printed["cost"]["per_job_usd"] == pytest.approx(printed["cost_per_job_usd"], rel=1e-3)
    assert printed["recording"]["rows"] == 60
    assert json.loads(out.read_text())["series"]


def test_the_command_says_in_words_what_came_of_it(day: Path) -> None:
    answer = command(day, "--time", "at", "--limit", 4)

    assert "60 jobs" in answer.stdout
    assert "every invariant" in answer.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--time", "at", "--limit", 0), "--limit: got a number out of range"),
        (("--time", "at", "--limit", "nan"), "--limit: got a number out of range"),
        (("--time", "at", "--limit", 4, "--tokens", "in,out,game"), "--tokens: got other text"),
        (("--time", "at", "--limit", 4, "--token-prices", "free"), "--token-prices: got other text"),
        (("--time", "at", "--limit", 4, "--out", "no/such/folder.json"), "--out: got No such file or directory"),
        (("--time", "at", "--limit", 4, "--out", "/"), "--out: got Is a directory, expected a file that can be writ"),
        (("--time", "att", "--limit", 4), '--time: got "att", which is no column'),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(day: Path, options: tuple[object, ...], said: str) -> None:
    answer = command(day, *options)

    assert answer.exit_code == 2
    assert said in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(not HOUR.exists(), reason="the recorded hour is not part of the project")
def test_the_first_minutes_of_the_recorded_hour_drain_with_kills() -> None:
    whole = read_recording(HOUR, Columns(time="TIMESTAMP", tokens=("ContextTokens", "GeneratedTokens")))
    run = Replay(replace(whole, rows=whole.rows[:1_500]), Options(limit_per_s=8.0, kills_per_minute=6.0), 7)
    run.run()
    result, bill = run.finish(), run.bill()

    assert result.passed, result.said
    assert (result.figures.jobs, result.figures.done) == (1_500, 1_500)
    assert bill.resumed_jobs >= 1
