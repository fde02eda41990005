"""`plan`: min(R, W/S) - A with given numbers and with a live class's, and never a traceback."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from ops.cli import main
from ops.simulator.sluice_world import SimSluice
from shared.domain.job import NewJob
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings
from tests.commands.memory import GivenHistory
from tests.commands.world import CLASS, World, settings, worked

NUMBERS = ("--pending", 2400, "--limit", 40, "--slots", 50, "--service", 1)
KEYS = {"drains", "net_rate_per_s", "drain_s", "binding", "ticks", "cost_usd"}


def planned(world: World, *arguments: object) -> dict[str, Any]:
    figures = world.json("plan", *arguments)
    assert figures.keys() >= KEYS
    return figures


@pytest.mark.parametrize(
    ("arrivals", "drains", "net_per_s", "drain_s", "ticks"),
    [(10, True, 30, 80, 2), (35, True, 5, 480, 8), (40, False, 0, None, None), (41, False, -1, None, None)],
)
def test_the_planning_cases(
    arrivals: float, drains: bool, net_per_s: float, drain_s: float | None, ticks: int | None
) -> None:
    plan = planned(World(), *NUMBERS, "--arrivals", arrivals)

    assert (plan["drains"], plan["net_rate_per_s"], plan["drain_s"]) == (drains, net_per_s, drain_s)
    assert (plan["binding"], plan["ticks"], plan["cost_usd"]) == ("upstream", ticks, None)
    assert "Raising slots does nothing: the upstream binds." in plan["sentences"]


def test_never_is_a_sentence_and_exit_code_0() -> None:
    result = World().run("plan", *NUMBERS, "--arrivals", 40)

    assert result.exit_code == 0
    assert result.stdout.startswith("It will not drain: 40 jobs/s arrive, the upstream allows 40.\n")


def test_given_numbers_need_no_deployment_and_no_environment() -> None:
    arguments = ["plan", *(str(each) for each in NUMBERS), "--arrivals", "10"]
    result = CliRunner(env=dict.fromkeys(("SLUICE_TABLE", "SLUICE_BUCKET", "SLUICE_QUEUES"))).invoke(main, arguments)

    assert result.exit_code == 0
    assert "2400 jobs drain in 80 s at 30/s net of arrivals." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--slots", 5, "--service", 1),
            "error: --pending: got nothing, expected a number, or a CLASS to read it from",
        ),
        ((*NUMBERS, "--arrivals", "nan"), "error: --arrivals: got nan, expected"),
        ((*NUMBERS, "--arrivals", "-1"), "error: --arrivals: got -1"),
        (("--pending", 1, "--limit", 0, "--slots", 5, "--service", 1), "error: --limit: got 0.0, expected above 0"),
        ((*NUMBERS, "--share", "1.5"), "error: --share: got 1.5, expected at most 1"),
        ((*NUMBERS, "--calls", "inf"), "error: --calls: got inf, expected"),
        (("replayz",), "did you mean replays?"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_option(arguments: tuple[object, ...], sentence: str) -> None:
    result = World().run("plan", *arguments)

    assert result.exit_code == 2
    assert sentence in result.stderr


def with_upstream(rows: int, *, minutes: int) -> World:
    settings = Settings(
        upstreams={"api": UpstreamSettings(name="api", endpoint="http://api", limit_per_s=2.0)},
        classes={CLASS: ClassSettings(name=CLASS, kind="sim", upstream="api", slots=20, declared_service_s=0.5)},
    )
    world = World(sluice=SimSluice(settings, seed=1))
    world.submit(rows, '{"chunk_ms": 200}')
    world.sluice.run(minutes * 60_000 + 30_000)
    return world


def test_a_live_class_is_read_and_says_of_each_number_where_it_is_from() -> None:
    world = with_upstream(2_000, minutes=9)
    plan = planned(world, CLASS)
    last = world.control.history[-1]

    assert plan["numbers"]["pending"] == {"value": last.pending, "source": "the last tick"}
    assert plan["numbers"]["arrivals"]["value"] == pytest.approx(0, abs=0.15)
    assert plan["numbers"]["limit"]["source"].startswith("learned: ")
    assert plan["numbers"]["service"]["source"].startswith("measured from ")
    assert (plan["drains"], plan["binding"]) == (True, "upstream")
    assert plan["drain_s"] == pytest.approx(last.pending / 2.0, rel=0.15)
    assert 0 < plan["cost_usd"] < 1


def test_a_number_that_is_given_replaces_the_live_one() -> None:
    world = with_upstream(300, minutes=3)

    assert planned(world, CLASS, "--pending", 6_000, "--arrivals", 0, "--limit", 4)["drain_s"] == 1_500
    assert planned(world, CLASS, "--slots", 4, "--service", 8, "--limit", 4)["binding"] == "slots"


def test_declared_asks_no_ledger() -> None:
    world = worked(50, minutes=3)
    world.sluice.ledger.reads.clear()
    plan = planned(world, CLASS, "--declared", "--pending", 400)

    assert not world.sluice.ledger.reads
    assert (plan["numbers"]["service"], plan["drain_s"]) == ({"value": 10.0, "source": "declared"}, 200)


def test_before_the_first_tick_nothing_is_known_to_wait() -> None:
    plan = planned(World(), CLASS)

    assert plan["numbers"]["pending"] == {"value": 0.0, "source": "no tick has counted yet"}
    assert plan["drains"]


def test_ready_matches_bind_where_there_are_fewer_than_slots() -> None:
    assert planned(World(), *NUMBERS, "--matches", 3)["binding"] == "matches"


# -- whether this is the right tool


def warnings(world: World, *arguments: object) -> list[str]:
    plan: list[str] = planned(world, CLASS, *arguments)["warnings"]
    return plan


def test_a_chunk_that_the_timeout_has_no_room_for_is_said_with_both_numbers() -> None:
    declared = World(sluice=SimSluice(settings(declared_chunk_s=115.0, declared_service_s=115.0), seed=1))
    assert warnings(declared) == [
        "The wrong tool for a job that cannot be cut: a chunk takes 115 s (p95, declared) and the function's timeout"
        " leaves it 110 s. Make the chunks smaller, or run the job where nothing times out."
    ]

    measured = World(sluice=SimSluice(settings(function_timeout_s=30, chunk_margin_s=20.0), seed=1))
    payload = '{"chunk_ms": 14000}'
    new = [NewJob(job_id=f"j{n}", job_class=CLASS, match_id=f"m{n}", payload=payload) for n in range(400)]
    measured.sluice.submit(new)
    measured.sluice.run(20 * 60_000)
    (warning,) = warnings(measured)
    assert "(p95, measured from " in warning
    assert "leaves it 10 s" in warning


def in_one_match(rows: int, *, others: int, **changes: Any) -> World:
    """A backlog that waits: the class is paused."""
    world = World(sluice=SimSluice(settings(declared_service_s=2.0, **changes), seed=1))
    world.sluice.pause(CLASS)
    big = [NewJob(job_id=f"j{n}", job_class=CLASS, match_id="all", payload="{}") for n in range(rows)]
    small = [NewJob(job_id=f"o{n}", job_class=CLASS, match_id=f"o{n}", payload="{}") for n in range(others)]
    world.sluice.submit([*big, *small])
    return world


@pytest.mark.parametrize("ordered", [False, True])
def test_one_match_that_holds_most_is_said_and_how_many_rows_were_looked_at(ordered: bool) -> None:
    """In an ordered class all but the head of it are in another list."""
    (warning,) = warnings(in_one_match(60, others=5, ordered=ordered))

    assert warning.startswith(
        "The wrong tool for one match that holds everything: 60 of the 65 waiting rows that were looked at (the oldest"
        " of each list) are of one match, which runs them one after another, for 120 s at least; 6 of 20 slots have"
        " something to do."
    )
    assert "all" not in warning.split(), "a match's id is nobody's business here"


def test_a_large_match_among_enough_others_is_none_to_speak_of() -> None:
    assert warnings(in_one_match(60, others=30)) == []


def test_a_pool_that_deferred_nothing_for_a_day_is_said() -> None:
    world = World(past=GivenHistory({"DeferredRows": 0.0, "AdmittedRows": 12.0}))

    assert warnings(world) == [
        "The wrong tool for a pool that never saturates: in 24 hours no row has had to wait for a later tick. A plain"
        " queue with this worker would do, without pacer and ledger."
    ]


@pytest.mark.parametrize(
    "past",
    [
        GivenHistory({"DeferredRows": 3.0, "AdmittedRows": 12.0}),
        GivenHistory({"DeferredRows": 0.0, "AdmittedRows": 0.0}),  # idle: that says nothing
        GivenHistory({"DeferredRows": 0.0, "AdmittedRows": 12.0}, hours=19),  # not a day yet
        GivenHistory({}),
    ],
)
def test_otherwise_nothing_is_said_of_the_pool(past: GivenHistory) -> None:
    plan = planned(World(past=past), CLASS)

    assert (plan["warnings"], plan["unknown"]) == ([], [])


def test_what_cloudwatch_does_not_say_is_said_and_the_plan_stands() -> None:
    world = World(past=GivenHistory(None))
    plan = planned(world, CLASS)

    assert plan["unknown"] == ["Whether the pool ever saturates is not known: CloudWatch did not say (AccessDenied)."]
    assert plan["drains"]
    assert "Whether the pool ever saturates is not known" in world.run("plan", CLASS).stdout


def test_the_metrics_that_are_asked_for_are_those_that_ticks_emit() -> None:
    world = worked(50, minutes=3)
    history = world.history()

    for name in ("DeferredRows", "AdmittedRows"):
        assert history.maxima(CLASS, name, since_ms=0, until_ms=world.sluice.world.now_ms), name
