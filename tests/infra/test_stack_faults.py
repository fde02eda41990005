"""What AWS would refuse half-way through a deployment, or what would collide: a line each at synth, no stack trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from infra.bundle import Bundle
from infra.job_class import class_id
from infra.stack_faults import OWN_IDS, class_faults, stack_faults
from shared.domain.settings import ClassSettings, Settings
from tests.infra.conftest import synth_shape
from tests.infra.test_app import synth
from tests.infra.tree import CONFIG, plant
from tests.infra.whole_app import SHAPES


class ShortSighted(ClassSettings, frozen=True, kw_only=True):
    """A class whose queue shows a message again while it is still being worked on."""

    @property
    def visibility_s(self) -> int:
        return self.function_timeout_s - 1


def plain(name: str) -> ClassSettings:
    return ClassSettings(name=name, kind="replay_summary")


def test_a_visibility_below_the_function_timeout_stops_the_synth() -> None:
    (fault,) = class_faults(ShortSighted(name="sweep", kind="sweep", function_timeout_s=120))
    assert fault == "classes.sweep: got a queue visibility of 119 s, expected at least the function timeout of 120 s"


def test_slots_that_a_mapping_would_refuse_stop_the_synth() -> None:
    assert class_faults(replace(plain("sweep"), slots=4)) == []
    (fault,) = class_faults(replace(plain("sweep"), slots=3))
    assert fault == "classes.sweep.slots: got 1 for the live lane, expected 2 to 1000"
    assert class_faults(replace(plain("sweep"), slots=2000))


def test_an_interval_of_less_than_whole_minutes_stops_the_synth() -> None:
    assert class_faults(replace(plain("sweep"), tick_interval_s=90)) == [
        "classes.sweep.tick_interval_s: got 90, expected whole minutes"
    ]


@pytest.mark.parametrize(
    ("options", "got"),
    [({}, "nothing"), ({"sessions_table": "a/b"}, "other text"), ({"session_table": "game-sessions"}, "nothing")],
)
def test_a_session_sweep_that_does_not_know_its_table_stops_the_synth(options: dict[str, str], got: str) -> None:
    sweep = ClassSettings(name="sweep", kind="session_sweep", options=options)
    assert class_faults(sweep) == [
        f"classes.sweep.options.sessions_table: got {got}, expected a DynamoDB table's name:"
        " 3 to 255 of A-Z, a-z, 0-9, _, - and ."
    ]


def test_two_names_that_would_share_a_logical_id_stop_the_synth() -> None:
    assert class_id("guild_1") == class_id("guild1") == "Guild1"
    settings = Settings(classes={name: plain(name) for name in ("guild1", "guild_1")})
    (fault,) = stack_faults(settings, stack_name="Sluice")
    assert fault == "classes.guild_1: got the resource name of classes.guild1 (Guild1), expected its own"


def test_more_queue_urls_than_a_functions_environment_holds_stop_the_synth() -> None:
    few = {name: plain(name) for name in (f"class_{number:02d}" for number in range(10))}
    many = {name: plain(name) for name in (f"class_{number:02d}" for number in range(20))}
    assert stack_faults(Settings(classes=few), stack_name="Sluice") == []
    (fault,) = stack_faults(Settings(classes=many), stack_name="Sluice")
    assert fault.startswith("classes: got 20, whose queue URLs take up to ")


def test_a_stack_without_a_class_stops_the_synth() -> None:
    assert stack_faults(Settings(), stack_name="Sluice") == ["classes: got none, expected at least one job class"]


# -- names


def faults_of(*names: str, kind: str = "sim") -> list[str]:
    classes = {name: ClassSettings(name=name, kind=kind) for name in names}
    return stack_faults(Settings(classes=classes), stack_name="Sluice")


@pytest.mark.parametrize("name", ["pacer", "producers", "webhook", "webhook_url", "dead_letter_reader", "customer_key"])
def test_a_class_cannot_take_the_name_of_a_part_of_the_stack(name: str) -> None:
    assert faults_of(name, "replays") == [
        f"classes.{name}: got the resource name of the stack's own part ({class_id(name)}), expected its own"
    ]


def test_a_class_cannot_take_the_name_of_a_kinds_layer() -> None:
    assert faults_of("thumbs_dependencies", kind="thumbs") == [
        "classes.thumbs_dependencies: got the resource name of the layer of kind thumbs (ThumbsDependencies),"
        " expected its own"
    ]


def test_every_name_that_the_stack_itself_takes_is_known(bundle: Bundle) -> None:
    settings = SHAPES["everything, under a key of its own"]
    stack = synth_shape(settings, bundle, ephemeral=False).stack
    classes = {class_id(name) for name in settings.classes}
    assert {child.node.id for child in stack.node.children} - classes == OWN_IDS


def test_the_app_ends_with_that_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = plant(tmp_path / "tree")
    (root / "sluice.toml").write_text(CONFIG.replace("[classes.session_sweep]", "[classes.pacer]"))
    assert synth(root, tmp_path / "out") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "classes.pacer: got the resource name of the stack's own part (Pacer), expected its own"
