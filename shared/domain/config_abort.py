"""What `sluice.toml` may say of when a class stops by itself: a bound for each rule, or `false` for none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from shared.domain import config_rules as rules
from shared.domain.settings import AbortRules


def _or_off(rule: rules.Rule) -> rules.Rule:
    """TOML has no null, so `false` switches a rule off; to Python it is a number, to this rule it is not."""

    def accepts(value: Any) -> bool:
        return value is False or (not isinstance(value, bool) and rule.accepts(value))

    def convert(value: Any) -> Any:
        return None if value is False else rule.convert(value)

    expected = f"{rule.expected}, or false to switch the rule off"
    return replace(rule, kinds=(*rule.kinds, bool), accepts=accepts, convert=convert, expected=expected)


ABORT: Final = rules.Section(
    target=AbortRules,
    rules={
        "age_windows": _or_off(rules.whole(1, 60)),
        "excess_share": _or_off(rules.number(0, 10)),
        "retry_share": _or_off(rules.number(0, 10)),
        "dead_share": _or_off(rules.number(0, 1)),
        "spend_usd": _or_off(rules.above_zero(1_000_000)),
    },
)
