"""`sluice.toml` on who admits runs: the webhook's own table, and the two keys of a class."""

from __future__ import annotations

import pytest

from shared.domain.configuration import parse_settings
from shared.domain.settings import Schedule, WebhookSettings
from shared.errors import ConfigError

A_CLASS = '[classes.documents]\nkind = "documents"\n'


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse_settings(text)
    return raised.value.faults


def test_without_a_word_nothing_is_open_and_every_class_has_its_schedule() -> None:
    found = parse_settings(A_CLASS)
    assert found.webhook_classes == frozenset()
    assert found.classes["documents"].schedule is Schedule.RUNS
    assert found.webhook == WebhookSettings()
    assert (found.webhook.max_age_s, found.webhook.max_ahead_s) == (120, 30)


def test_a_class_can_be_driven_by_the_webhook_alone() -> None:
    found = parse_settings(A_CLASS + 'webhook = true\nschedule = "repair"\n[webhook]\nmax_age_s = 90\n')
    assert found.webhook_classes == {"documents"}
    assert found.classes["documents"].schedule is Schedule.REPAIR
    assert found.webhook.max_age_s == 90


def test_a_class_that_nothing_would_ever_start_is_a_fault() -> None:
    assert faults(A_CLASS + 'schedule = "repair"\n') == [
        'classes.documents.schedule: got "repair", expected "runs", or webhook = true:'
        " nothing else would ever admit a run"
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('schedule = "never"', 'classes.documents.schedule: got "never", expected one of runs, repair'),
        ("webhook = 1", "classes.documents.webhook: got 1, expected true or false"),
        ("[webhook]\nmax_age_s = 10", "webhook.max_age_s: got 10, expected a whole number from 60 to 900"),
        ("[webhook]\nmax_ahead_s = 3600", "webhook.max_ahead_s: got 3600, expected a whole number from 0 to 120"),
        ("[webhook]\nburst = 0", "webhook.burst: got 0, expected a whole number from 1 to 5000"),
        ('[webhook]\ntoken = "canary"', "webhook.token: unknown key"),
    ],
)
def test_what_is_wrong_is_named(line: str, fault: str) -> None:
    (found,) = faults(A_CLASS + line + "\n")
    assert found.startswith(fault) or found.split(":")[0] == fault.split(":")[0]
    assert "canary" not in found
