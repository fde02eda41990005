"""`watch`: the drain as it goes, drawn on a terminal, in lines elsewhere, from one read of control a look."""

from __future__ import annotations

import io
import json

from rich.console import Console

from ops.commands.watch import drawn
from shared.operate.status import watched
from tests.commands.world import ADA, CLASS, World, worked


def test_elsewhere_than_on_a_terminal_it_is_one_line_a_look() -> None:
    result = worked(2_000, minutes=4).run("watch", CLASS, "--every", 60, "--times", 3)

    assert result.exit_code == 0, result.stderr
    first, _, last = result.stdout.splitlines()
    assert first.startswith("2026-11-30 12:04:00 UTC  replays  draining, done in ")
    assert "pending 1," in first
    assert "at 2.00 jobs/s" in first
    assert last.startswith("2026-11-30 12:06:00 UTC  replays  draining, done in ")
    assert "\x1b" not in result.stdout


def test_json_is_one_object_a_look() -> None:
    result = worked(2_000, minutes=4).run("watch", CLASS, "--every", 60, "--times", 2, "--json")
    first, second = (json.loads(line) for line in result.stdout.splitlines())

    assert first["class"] == CLASS
    assert second["rows"]["pending"] < first["rows"]["pending"]
    assert [line["run_id"] for line in second["ticks"]][-1] == second["last_tick"]["run_id"]
    assert len(second["ticks"]) > len(first["ticks"])


def test_a_terminal_shows_the_eta_first_then_rows_and_the_ticks() -> None:
    world = worked(2_000, minutes=6)
    stream = io.StringIO()
    console = Console(file=stream, width=110, force_terminal=False)
    console.print(drawn(watched(world.ports(), world.settings().classes[CLASS])))
    printed = stream.getvalue()

    assert printed.splitlines()[1].strip(" │").startswith("draining, done in ")
    assert printed.index("done in") < printed.index("waiting") < printed.index("last tick")
    assert "12:05" in printed
    assert "earned" in printed, "what bound each tick"


def test_a_pause_and_missing_ticks_are_seen() -> None:
    world = worked(2_000, minutes=3)
    world.run("pause", CLASS, "--reason", "odd answers", "--by", "ada")
    assert f"paused by {ADA}" in world.run("watch", CLASS, "--times", 1).stdout
    world.sluice.world.now_ms += 600_000
    assert "ticks are missing" in world.run("watch", CLASS, "--times", 1).stdout


def test_before_the_first_tick_it_waits_in_words() -> None:
    assert "no tick yet" in World().run("watch", CLASS, "--times", 1).stdout


def test_ctrl_c_ends_it_in_an_orderly_way() -> None:
    class Interrupted:
        def now_ms(self) -> int:
            return 0

        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    world = World()
    world.broken["clock"] = Interrupted()
    result = world.run("watch", CLASS)

    assert (result.exit_code, result.stderr) == (0, "")
