"""What `sluice.toml` may say about who admits a class's runs (the public webhook, the class's own schedule), and about
what its alarms hold it to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shared.domain import config_rules as rules
from shared.domain.settings import Schedule, WebhookSettings

SCHEDULE: Final = rules.Rule(
    kinds=(str,),
    accepts=lambda value: value in {each.value for each in Schedule},
    expected="one of " + ", ".join(each.value for each in Schedule),
    convert=Schedule,
)

WEBHOOK: Final = rules.Section(
    target=WebhookSettings,
    rules={
        "max_age_s": rules.whole(60, 900),
        "max_ahead_s": rules.whole(0, 120),
        "requests_per_s": rules.whole(1, 1000),
        "burst": rules.whole(1, 5000),
        "rotation_days": rules.whole(1, 365),
    },
)

CLASS: Final = replace(
    rules.CLASS,
    rules={
        **rules.CLASS.rules,
        "webhook": rules.FLAG,
        "schedule": SCHEDULE,
        "staged_recovery": rules.FLAG,
        "eta_objective_s": rules.above_zero(30 * rules.DAY_S),
        "age_objective_s": rules.above_zero(30 * rules.DAY_S),
    },
    laws=(
        *rules.CLASS.laws,
        rules.Law(
            blames="schedule",
            reads=("schedule", "webhook"),
            holds=lambda values: values["schedule"] is Schedule.RUNS or bool(values["webhook"]),
            expected='"runs", or webhook = true: nothing else would ever admit a run',
        ),
    ),
    inner=(*rules.CLASS.inner, "abort"),
)
