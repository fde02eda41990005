"""`sluice.toml`: what is right is read, and of what is wrong everything is named at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import fields

from shared.domain import keys
from shared.domain.configuration import load_settings, parse_settings
from shared.domain.job import Lane
from shared.domain.keys import Section
from shared.domain.settings import (
    AbortRules,
    ClassSettings,
    Consequence,
    GuildReportsSettings,
    MatchEndedSettings,
    ProducerSettings,
    RetrySettings,
    Schedule,
    SessionSweepSettings,
    Settings,
    UpstreamApi,
    UpstreamSettings,
    WebhookSettings,
)
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
    summary = settings.classes["replay_summary"]

    assert (settings.namespace, settings.pacer_timeout_s) == ("Guild/Drain", 200)
    assert (summary.ordered, summary.tick_interval_s, summary.live_share) == (True, 300, 1.0)
    assert summary.retry == RetrySettings(max_attempts=2)
    assert summary.options == {"sessions_table": "game-sessions"}
    assert settings.upstreams["inference"].errors == {
        402: Consequence.EXHAUSTED,
        429: Consequence.HOLD,
        503: Consequence.HOLD,  # the defaults stay under what a table adds
        529: Consequence.HOLD,
    }


def test_a_whole_number_serves_where_a_fraction_may_stand() -> None:
    assert isinstance(parse_settings(a_class("lateness_s = 20")).classes["replay_summary"].lateness_s, float)


def sections(tables: dict[str, Section]) -> Iterator[Section]:
    for section in tables.values():
        yield section
        yield from sections({name: inner for name, inner in section.inner.items() if isinstance(inner, Section)})


NOT_KEYS: dict[type, set[str]] = {
    Settings: {"webhook", "upstreams", "classes", "producers"},  # tables of their own beside [sluice]
    UpstreamSettings: {"name", "shares", "learned_per_s"},  # the table's own key; of the classes; of the ledger
    ClassSettings: {"name"},
}
"""Fields of the settings that no key of their table is read into."""


@pytest.mark.parametrize("section", [*sections(dict(keys.DOCUMENT))], ids=lambda section: section.target.__name__)
def test_every_field_of_the_settings_has_a_key_with_a_meaning_and_every_key_a_field(section: Section) -> None:
    names = {setting.name for setting in fields(section.target)} - NOT_KEYS.get(section.target, set())

    assert names == {*section.keys, *section.inner}
    assert section.about
    assert all(key.meaning.endswith(".") for key in section.keys.values())
    assert {name for law in section.laws for name in (law.blames, *law.reads)} <= set(section.keys)


@pytest.mark.parametrize("slots", [4, 5, 2000])
def test_each_lane_gets_what_an_event_source_mapping_accepts(slots: int) -> None:
    summary = parse_settings(a_class(f"slots = {slots}", "live_share = 0.5")).classes["replay_summary"]

    assert all(2 <= summary.lane_slots(lane) <= 1000 for lane in Lane)


def test_each_abort_rule_has_a_bound_or_is_switched_off() -> None:
    table = "[classes.replay_summary.abort]\nage_windows = 5\ndead_share = false\nspend_usd = 20\n"
    rules = parse_settings(a_class() + table).classes["replay_summary"].abort

    assert rules == AbortRules(age_windows=5, dead_share=None, spend_usd=20.0)


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


# -- upstreams, and what the classes that share one may ask of it

BAD_UPSTREAMS = [
    ('endpoint = "ftp://inference.example"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('endpoint = "inference.example"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('endpoint = "https://"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('endpoint = "https://[bad"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('endpoint = "https://a:b"', "endpoint: got a string, expected an http:// or https:// URL"),  # no port
    ('endpoint = "https://a b"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('api = "grpc"', 'api: got "grpc", expected one of http, bedrock-converse'),
    ('model = "eu.some.model-v1:0"', "model: got"),  # with an endpoint that knows no models
    ('model = "with spaces"', 'model: got "with spaces", expected the id or ARN of a Bedrock model'),
    ("max_tokens = 0", "max_tokens: got 0, expected a whole number from 1 to 100000"),
    (
        "limit_per_s = 0",
        "limit_per_s: got 0, expected a number above 0, at most 100000",
    ),  # no rate ever recovers from 0
    ("limit_per_s = nan", "limit_per_s: got nan, expected a number above 0, at most 100000"),
    ("burst_calls = 0", "burst_calls: got 0, expected a whole number from 1 to 100000"),
    ("limit_per_s = 501", "burst_calls: got 1, expected at least 1 for each 500 of limit_per_s or part of it"),
    ('refusal_threshold = "2%"', "refusal_threshold: got a string, expected a number from 0 to 1"),
    ("timeout_s = 120", "timeout_s: got 120.0, expected less than classes.replay_summary.function_timeout_s"),
    ("errors = 429", "errors: got a whole number, expected a table"),
    ('errors = {200 = "hold"}', 'errors.200: got "200", expected an HTTP status from 400 to 599'),
    ('errors = {600 = "hold"}', 'errors.600: got "600", expected an HTTP status from 400 to 599'),
    ('errors = {"٤٢٩" = "hold"}', 'errors."\\u0664\\u0662\\u0669": got'),  # digits to int(), not to HTTP
    ('errors = {429 = "retry"}', 'errors.429: got "retry", expected one of refuse, hold, exhausted, reject'),
    ("errors = {429 = 1}", "errors.429: got a whole number, expected one of refuse, hold, exhausted, reject"),
]


@pytest.mark.parametrize(("line", "expected"), BAD_UPSTREAMS)
def test_a_fault_of_an_upstream_is_named_like_any_other(line: str, expected: str) -> None:
    kept = [given for given in UPSTREAM_TABLE.splitlines() if given.partition(" ")[0] != line.partition(" ")[0]]
    (fault,) = faults("\n".join([*kept, line, a_class('upstream = "inference"')]))

    assert fault.startswith(f"upstreams.inference.{expected}")


def test_shares_of_one_upstream_above_one_are_refused_with_the_keys_that_make_them_up() -> None:
    both = a_class('upstream = "inference"', "upstream_share = 0.7", name="a")
    both += a_class('upstream = "inference"', "upstream_share = 0.5", name="b")

    assert faults(UPSTREAM_TABLE + both) == [
        "classes.a.upstream_share + classes.b.upstream_share: got 1.2, "
        "expected shares of upstreams.inference that sum to at most 1"
    ]


def test_shares_that_sum_to_one_are_accepted_whatever_their_fractions() -> None:
    classes = [a_class('upstream = "inference"', "upstream_share = 0.1", name=f"class_{n}") for n in range(10)]

    assert len(parse_settings(UPSTREAM_TABLE + "".join(classes)).classes) == 10


def test_an_address_is_not_repeated_however_short_it_is() -> None:
    text = UPSTREAM_TABLE.replace("https://inference", "ftp://me:CANARY@inference") + a_class()

    assert "CANARY" not in "".join(faults(text))


def test_an_upstream_without_an_address_is_told_which_one_is_missing() -> None:
    (fault,) = faults("[upstreams.inference]\nlimit_per_s = 8\n" + a_class('upstream = "inference"'))

    assert fault.startswith("upstreams.inference.endpoint: got nothing, expected an http:// or https:// URL with api =")


def test_a_model_of_bedrock_needs_no_address() -> None:
    text = '[upstreams.inference]\napi = "bedrock-converse"\nmodel = "eu.some.model-v1:0"\nlimit_per_s = 8\n'
    upstream = parse_settings(text + a_class('upstream = "inference"')).upstreams["inference"]

    assert (upstream.api, upstream.model, upstream.max_tokens) == (UpstreamApi.CONVERSE, "eu.some.model-v1:0", 1024)


def test_an_address_beside_a_model_is_refused_and_not_repeated() -> None:
    text = (
        UPSTREAM_TABLE + 'api = "bedrock-converse"\nmodel = "eu.some.model-v1:0"\n' + a_class('upstream = "inference"')
    )
    (fault,) = faults(text)

    assert fault.startswith(
        "upstreams.inference.endpoint: got a string, expected an http:// or https:// URL with api ="
    )


def test_a_model_that_is_not_named_is_a_fault() -> None:
    text = '[upstreams.inference]\napi = "bedrock-converse"\nlimit_per_s = 8\n' + a_class('upstream = "inference"')

    assert faults(text) == [
        "upstreams.inference.model: got nothing, expected the id or ARN of a Bedrock model or inference profile"
        ' with api = "bedrock-converse", nothing without it'
    ]


def test_a_burst_of_one_call_for_each_item_of_permits_is_enough() -> None:
    table = UPSTREAM_TABLE.replace("limit_per_s = 8", "limit_per_s = 1001\nburst_calls = 3")
    made = parse_settings(table + a_class('upstream = "inference"')).upstreams["inference"]

    assert (made.limit_per_s, made.burst_calls) == (1001.0, 3)


# -- who admits runs: the webhook, and the schedule of a class

DOCUMENTS = a_class(name="documents")


def test_without_a_word_nothing_is_open_and_every_class_has_its_schedule() -> None:
    settings = parse_settings(DOCUMENTS)
    assert settings.webhook_classes == frozenset()
    assert settings.classes["documents"].schedule is Schedule.RUNS
    assert settings.webhook == WebhookSettings()
    assert (settings.webhook.max_age_s, settings.webhook.max_ahead_s) == (120, 30)


def test_a_class_can_be_driven_by_the_webhook_alone() -> None:
    settings = parse_settings(DOCUMENTS + 'webhook = true\nschedule = "repair"\n[webhook]\nmax_age_s = 90\n')
    assert settings.webhook_classes == {"documents"}
    assert settings.classes["documents"].schedule is Schedule.REPAIR
    assert settings.webhook.max_age_s == 90


def test_a_class_that_nothing_would_ever_start_is_a_fault() -> None:
    assert faults(DOCUMENTS + 'schedule = "repair"\n') == [
        'classes.documents.schedule: got "repair", expected "runs", or webhook = true:'
        " nothing else would ever admit a run"
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('schedule = "never"', 'classes.documents.schedule: got "never", expected one of runs, repair'),
        ("webhook = 1", "classes.documents.webhook: got a whole number, expected true or false"),
        ("[webhook]\nmax_age_s = 10", "webhook.max_age_s: got 10, expected a whole number from 60 to 900"),
        ("[webhook]\nmax_ahead_s = 3600", "webhook.max_ahead_s: got 3600, expected a whole number from 0 to 120"),
        ("[webhook]\nburst = 0", "webhook.burst: got 0, expected a whole number from 1 to 5000"),
        ('[webhook]\ntoken = "canary"', "webhook.token: unknown key"),
    ],
)
def test_a_fault_of_the_webhook_is_named_like_any_other(line: str, expected: str) -> None:
    (fault,) = faults(DOCUMENTS + line + "\n")

    assert fault.startswith(expected)
    assert "canary" not in fault


# -- what submits jobs by itself

CLASSES = a_class(name="summary") + a_class(name="reports") + a_class(name="sweep")


def test_nothing_submits_jobs_by_itself_unless_it_is_said() -> None:
    assert parse_settings(CLASSES).producers == ProducerSettings()


def test_every_producer_is_read_with_its_defaults() -> None:
    producers = parse_settings(
        CLASSES
        + '[producers.match_ended]\nreplay_class = "summary"\n'
        + '[producers.guild_reports]\njob_class = "reports"\nguilds_table = "game-guilds"\nat = "23:59"\n'
        + '[producers.session_sweep]\njob_class = "sweep"\n'
    ).producers
    assert producers == ProducerSettings(
        match_ended=MatchEndedSettings(replay_class="summary"),
        guild_reports=GuildReportsSettings(job_class="reports", guilds_table="game-guilds", at="23:59"),
        session_sweep=SessionSweepSettings(job_class="sweep", at="04:00"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("producers = 5", "producers: got a whole number, expected a table"),
        ("producers.match_ended = 5", "producers.match_ended: got a whole number, expected a table"),
        ("[producers.match_end]", "producers.match_end: unknown key; did you mean match_ended?"),
        ("[producers.match_ended]", "producers.match_ended.replay_class: got nothing, expected a class here or in"),
        (
            '[producers.match_ended]\nreplay_class = "summaries"',
            'producers.match_ended.replay_class: got "summaries", expected the name of a [classes.<name>] table;'
            " did you mean summary?",
        ),
        (
            '[producers.match_ended]\nreplay_class = "summary"\nbus = "my bus"',
            'producers.match_ended.bus: got "my bus", expected the name of an EventBridge bus',
        ),
        ('[producers.session_sweep]\njob_class = "sweep"\nat = "24:00"', 'producers.session_sweep.at: got "24:00"'),
        ('[producers.session_sweep]\njob_class = "sweep"\nat = 4', "producers.session_sweep.at: got a whole number"),
        ("[producers.session_sweep]", "producers.session_sweep.job_class: got nothing, expected a name like"),
        (
            '[producers.guild_reports]\njob_class = "reports"\nguilds_table = "a b"',
            'producers.guild_reports.guilds_table: got "a b", expected a DynamoDB table\'s name',
        ),
    ],
)
def test_a_fault_of_a_producer_is_named_like_any_other(text: str, expected: str) -> None:
    (fault,) = faults(f"{text}\n{CLASSES}")
    assert fault.startswith(expected)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = [", "staging.toml, end of document: not TOML: "),
        ("x = " + "[" * 100_000, "staging.toml: not TOML: it is nested too deeply"),
        ("x = " + "9" * 5_000, "staging.toml: not TOML: a number has too many digits"),
    ],
    ids=lambda value: value[:40],
)
def test_text_that_is_no_toml_is_blamed_on_the_file_that_it_stands_in(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "staging.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as raised:
        load_settings(tmp_path / "staging.toml")
    assert [fault.startswith(expected) for fault in raised.value.faults] == [True]
