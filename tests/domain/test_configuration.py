"""`sluice.toml`: what is right is read, and of what is wrong everything is named at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from shared.domain.config_abort import ABORT
from shared.domain.config_rules import GENERAL, RETRY, Section
from shared.domain.config_triggers import CLASS, WEBHOOK
from shared.domain.config_upstreams import UPSTREAM
from shared.domain.configuration import load_settings, parse_settings
from shared.domain.job import Lane
from shared.domain.settings import AbortRules, ClassSettings, Consequence, RetrySettings, Settings, UpstreamSettings
from shared.errors import ConfigError

UPSTREAM_TABLE = '[upstreams.inference]\nendpoint = "https://inference.example"\nlimit_per_s = 8\n'


def a_class(*lines: str, name: str = "replay_summary") -> str:
    given_kind = any(line.startswith("kind") for line in lines)
    return "\n".join([f"[classes.{name}]", *([] if given_kind else ['kind = "replay_summary"']), *lines, ""])


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse_settings(text)
    return raised.value.faults


# -- what is right


def test_the_projects_own_file_is_valid() -> None:
    settings = load_settings()

    assert settings.classes["replay_summary"].upstream == "inference"
    assert settings.upstreams["inference"].errors[429] is Consequence.REFUSE


def test_what_is_not_said_is_the_dataclasss_default() -> None:
    settings = parse_settings(UPSTREAM_TABLE + a_class())

    assert settings == Settings(
        upstreams={
            "inference": UpstreamSettings(name="inference", endpoint="https://inference.example", limit_per_s=8.0)
        },
        classes={"replay_summary": ClassSettings(name="replay_summary", kind="replay_summary")},
    )


def test_everything_that_can_be_said_is_read() -> None:
    settings = parse_settings(
        '[sluice]\nnamespace = "Guild/Drain"\npacer_timeout_s = 200\n'
        + UPSTREAM_TABLE
        + '[upstreams.inference.errors]\n402 = "exhausted"\n429 = "hold"\n'
        + a_class("ordered = true", 'upstream = "inference"', "tick_interval_s = 300", "live_share = 1")
        + "[classes.replay_summary.retry]\nmax_attempts = 2\n"
        + '[classes.replay_summary.options]\nsessions_table = "game-sessions"\n'
    )
    found = settings.classes["replay_summary"]

    assert (settings.namespace, settings.pacer_timeout_s) == ("Guild/Drain", 200)
    assert (found.ordered, found.tick_interval_s, found.live_share) == (True, 300, 1.0)
    assert found.retry == RetrySettings(max_attempts=2)
    assert found.options == {"sessions_table": "game-sessions"}
    assert settings.upstreams["inference"].errors == {
        402: Consequence.EXHAUSTED,
        429: Consequence.HOLD,
        503: Consequence.HOLD,  # the defaults stay under what a table adds
        529: Consequence.HOLD,
    }


def test_a_whole_number_serves_where_a_fraction_may_stand() -> None:
    assert isinstance(parse_settings(a_class("lateness_s = 20")).classes["replay_summary"].lateness_s, float)


@pytest.mark.parametrize(
    "section", [GENERAL, UPSTREAM, CLASS, RETRY, ABORT, WEBHOOK], ids=lambda section: section.target.__name__
)
def test_every_field_of_the_settings_has_a_rule_and_every_rule_a_field(section: Section) -> None:
    tables = {"name", "upstreams", "classes", *section.inner}
    tables |= {"shares", "learned_per_s"} if section is UPSTREAM else set()  # of the classes, of the ledger
    # A class opens itself to the webhook with a key that the whole settings have a table of.
    tables |= {"webhook", "producers"} if section is GENERAL else set()

    assert {field.name for field in dataclasses.fields(section.target)} - tables == set(section.rules)


@pytest.mark.parametrize("slots", [4, 5, 2000])
def test_each_lane_gets_what_an_event_source_mapping_accepts(slots: int) -> None:
    found = parse_settings(a_class(f"slots = {slots}", "live_share = 0.5")).classes["replay_summary"]

    assert all(2 <= found.lane_slots(lane) <= 1000 for lane in Lane)


def test_each_abort_rule_has_a_bound_or_is_switched_off() -> None:
    table = "[classes.replay_summary.abort]\nage_windows = 5\ndead_share = false\nspend_usd = 20\n"
    found = parse_settings(a_class() + table).classes["replay_summary"].abort

    assert found == AbortRules(age_windows=5, dead_share=None, spend_usd=20.0)


# -- what is wrong, one key at a time

BAD_CLASS_LINES = [
    # wrong kinds
    ('live_share = "30%"', "live_share: got a string, expected a number from 0 to 1"),
    ("live_share = true", "live_share: got a boolean, expected a number from 0 to 1"),
    ("slots = true", "slots: got a boolean, expected a whole number from 4 to 2000"),  # to Python, True is 1
    ("slots = 10.0", "slots: got 10.0, expected a whole number from 4 to 2000"),
    ("slots = [10]", "slots: got an array, expected a whole number from 4 to 2000"),
    ("ordered = 1", "ordered: got a whole number, expected true or false"),
    ('ordered = "true"', "ordered: got a string, expected true or false"),
    ("max_hops = 2026-11-30", "max_hops: got a date, expected a whole number from 1 to 10000"),
    ("kind = 3", "kind: got a whole number, expected a snake_case module name under functions/worker/kinds"),
    ("retry = 5", "retry: got a whole number, expected a table"),
    ("abort = 5", "abort: got a whole number, expected a table"),
    ("abort.age_windows = 0", "abort.age_windows: got 0, expected a whole number from 1 to 60, or false to switch"),
    ("abort.dead_share = true", "abort.dead_share: got a boolean, expected a number from 0 to 1, or false to switch"),
    ("abort.spend_usd = nan", "abort.spend_usd: got nan, expected a number above 0, at most 1e+06, or false to switch"),
    ("abort.dead_ratio = 0.1", "abort.dead_ratio: unknown key"),
    ('options = "x"', "options: got a string, expected a table"),
    ("options.table = 5", "options.table: got a whole number, expected a string of 1 to 500 printable characters"),
    ('options.token = "a\\nb"', "options.token: got a string, expected a string of 1 to 500"),  # never shown
    ('options.table = ""', "options.table: got a string, expected a string of 1 to 500 printable characters"),
    ('options.Table = "a"', 'options.Table: got "Table", expected a name like replay_summary'),
    # numbers out of range
    ("lateness_s = -1", "lateness_s: got -1, expected a number from 0 to 86400"),
    ("lateness_s = nan", "lateness_s: got nan, expected a number from 0 to 86400"),
    ("lateness_s = inf", "lateness_s: got inf, expected a number from 0 to 86400"),
    ("lateness_s = 1e999", "lateness_s: got inf, expected a number from 0 to 86400"),
    ("declared_service_s = 0", "declared_service_s: got 0, expected a number above 0, at most 604800"),
    ("declared_chunk_s = -inf", "declared_chunk_s: got -inf, expected a number above 0, at most 900"),
    ("live_share = 30", "live_share: got 30, expected a number from 0 to 1"),  # percent
    ("upstream_share = 0", "upstream_share: got 0, expected a number above 0, at most 1"),
    ("slots = 3", "slots: got 3, expected a whole number from 4 to 2000"),  # a lane needs 2
    ("slots = 2001", "slots: got 2001, expected a whole number from 4 to 2000"),
    (f"slots = 0x{'f' * 9000}", "slots: got a huge number, expected a whole number from 4 to 2000"),  # str() refuses it
    ("batch_size = 0", "batch_size: got 0, expected a whole number from 1 to 10"),
    ("batch_size = 11", "batch_size: got 11, expected a whole number from 1 to 10"),
    ("function_timeout_s = 901", "function_timeout_s: got 901, expected a whole number from 1 to 900"),
    ("memory_mb = 64", "memory_mb: got 64, expected a whole number from 128 to 10240"),
    ("memory_mb = 10241", "memory_mb: got 10241, expected a whole number from 128 to 10240"),
    ("max_hops = 0", "max_hops: got 0, expected a whole number from 1 to 10000"),
    ("eta_objective_s = 0", "eta_objective_s: got 0, expected a number above 0, at most 2.592e+06"),
    ("age_objective_s = nan", "age_objective_s: got nan, expected a number above 0, at most 2.592e+06"),
    ("max_inflight = 0", "max_inflight: got 0, expected a whole number from 1 to 120000"),
    ("priorities = 0", "priorities: got 0, expected a whole number from 1 to 9"),
    ("priorities = 10", "priorities: got 10, expected a whole number from 1 to 9"),
    ("live_window_s = -300", "live_window_s: got -300, expected a whole number from 0 to 604800"),
    ("tick_interval_s = 90", "tick_interval_s: got 90, expected a multiple of 60 from 60 to 86400"),
    ("tick_interval_s = 0", "tick_interval_s: got 0, expected a multiple of 60 from 60 to 86400"),
    ("tick_interval_s = 86460", "tick_interval_s: got 86460, expected a multiple of 60 from 60 to 86400"),
    # names
    ('kind = "Replay-Summary"', 'kind: got "Replay-Summary", expected a snake_case module name'),
    ('kind = "../secrets"', 'kind: got "../secrets", expected a snake_case module name'),
    (
        'kind = "class"',
        'kind: got "class", expected a snake_case module name',
    ),  # no module can be imported by that name
    ('kind = "replay_summary\\n"', 'kind: got "replay_summary\\n", expected a snake_case module name'),
    (
        'upstream = "infrence"',
        'upstream: got "infrence", expected the name of an [upstreams.<name>] table; did you mean ',
    ),
    # keys that do not exist
    ("live_shar = 0.3", "live_shar: unknown key; did you mean live_share?"),
    ("slot = 4", "slot: unknown key; did you mean slots?"),
    ("zzz = 1", "zzz: unknown key"),
    ('"a\\nb" = 1', '"a\\nb": unknown key'),
    ("name = 'other'", "name: unknown key"),  # the table's own key is the name
    # keys that depend on one another
    ("function_timeout_s = 10", "chunk_margin_s: got 10.0, expected less than function_timeout_s"),
    ("chunk_margin_s = 120", "chunk_margin_s: got 120.0, expected less than function_timeout_s"),
    (
        "slots = 2000",
        "slots: got 2000, expected at most 1000 slots for each lane",
    ),  # live_share 0.3 leaves recovery 1400
]


@pytest.mark.parametrize(("line", "expected"), BAD_CLASS_LINES)
def test_a_fault_names_its_key_and_what_was_expected(line: str, expected: str) -> None:
    (fault,) = faults(UPSTREAM_TABLE.replace("limit_per_s", "timeout_s = 1\nlimit_per_s") + a_class(line))

    assert fault.startswith(f"classes.replay_summary.{expected}")
    assert "\n" not in fault


BAD_TEXTS = [
    # the document
    ("", "classes: got nothing, expected at least one [classes.<name>] table"),
    ("classes = 3", "classes: got a whole number, expected a table"),
    ("[classes]\nreplay = 1", "classes.replay: got a whole number, expected a table"),
    ("[[classes.replay]]", "classes.replay: got an array, expected a table"),
    ("upstreams = []\n" + a_class(), "upstreams: got an array, expected a table"),
    ("[upstream.inference]\n" + a_class(), "upstream: unknown key; did you mean upstreams?"),
    ("[classes.replay]", "classes.replay.kind: got nothing, expected a snake_case module name"),
    # names of tables
    (a_class(name="Replay"), "classes.Replay: got "),
    (a_class(name="replay-summary"), "classes.replay-summary: got "),
    (a_class(name='"1 a"'), 'classes."1 a": got '),
    (a_class(name="a" * 41), f"classes.{'a' * 41}: got a string of 41 characters, expected a name"),
    # text that is no TOML
    (a_class() + a_class(), "sluice.toml, line 3, column 24: not TOML: Cannot declare"),  # a table twice
    (a_class("slots = 4", "slots = 5"), "sluice.toml, line 4, column 10: not TOML: Cannot overwrite a value"),
    (a_class("slots ="), "sluice.toml, line 3, column 8: not TOML: Invalid value"),
    ("x = [", "sluice.toml, end of document: not TOML: "),
    ("x = " + "[" * 100_000, "sluice.toml: not TOML: it is nested too deeply"),
    ("x = " + "9" * 5_000, "sluice.toml: not TOML: a number has too many digits"),
    # the general table
    (
        "[sluice]\npacer_timeout_s = 60\n" + a_class(),
        "sluice.pacer_timeout_s: got 60, expected at least 10 s less than the smallest",
    ),
    (
        '[sluice]\nnamespace = "AWS/SQS"\n' + a_class(),
        'sluice.namespace: got "AWS/SQS", expected a CloudWatch namespace',
    ),
    ("[sluice]\npacer_memory = 512\n" + a_class(), "sluice.pacer_memory: unknown key; did you mean pacer_memory_mb?"),
    # retries
    (
        a_class() + "[classes.replay_summary.retry]\nbase_delay_s = 60\nmax_delay_s = 30",
        "classes.replay_summary.retry.base_delay_s: got 60.0, expected at most max_delay_s",
    ),
    (a_class() + "[classes.replay_summary.retry]\nmax_crashes = 0", "classes.replay_summary.retry.max_crashes: got 0"),
    (
        a_class() + "[classes.replay_summary.retry]\nmax_transport_deaths = 0",
        "classes.replay_summary.retry.max_transport_deaths: got 0, expected a whole number from 1 to 100",
    ),
    (
        a_class() + "[classes.replay_summary.retry]\nmax_attempts = 0",
        "classes.replay_summary.retry.max_attempts: got 0",
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD_TEXTS, ids=lambda value: value[:60])
def test_a_document_with_one_fault_reports_that_one(text: str, expected: str) -> None:
    (fault,) = faults(text)

    assert fault.startswith(expected)
    assert "\n" not in fault


def test_every_fault_is_reported_at_once() -> None:
    text = '[sluice]\npacer_memory_mb = 1\n[upstreams.a]\nlimit_per_s = -1\n[classes.b]\nslots = 1\nupstream = "x"\n'

    assert [fault.partition(":")[0] for fault in faults(text)] == [
        "sluice.pacer_memory_mb",
        "upstreams.a.limit_per_s",
        "upstreams.a.endpoint",
        "classes.b.kind",
        "classes.b.slots",
        "classes.b.upstream",
    ]


@pytest.mark.parametrize("key", ["kind", "slots", "upstream"])
def test_a_long_string_is_never_repeated_in_a_fault(key: str) -> None:
    canary = "sk-CANARY-" + "x" * 40

    assert "CANARY" not in "".join(faults(a_class(f'{key} = "{canary}"')))


# -- files


def test_a_missing_file_and_one_that_is_not_text_are_faults_too(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")

    for name, expected in (("none.toml", "No such file"), ("binary.toml", "bytes that are not UTF-8")):
        with pytest.raises(ConfigError) as raised:
            load_settings(tmp_path / name)
        assert raised.value.faults[0].startswith(f"{name}: got {expected}")


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "sluice.toml").write_bytes(b"\xef\xbb\xbf" + a_class().encode())

    assert load_settings(tmp_path / "sluice.toml").classes
