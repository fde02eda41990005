"""`sluice.toml` and the environment -> frozen, validated values. Every fault is named in one go.

Standard library only: every Lambda imports this at cold start. The environment is read here and nowhere else, and
only when someone calls `read_environment`; boto3's own variables (region, endpoints, credentials) are boto3's business.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shared.domain.config_abort import ABORT
from shared.domain.config_producers import read_producers
from shared.domain.config_relations import judge_timeouts, judge_upstreams
from shared.domain.config_rules import (
    CONSEQUENCE,
    GENERAL,
    NAME,
    OPTION,
    RETRY,
    STATUS,
    Section,
    Values,
    did_you_mean,
    dotted,
    fault,
    kind_of,
    shown,
)
from shared.domain.config_triggers import CLASS, WEBHOOK
from shared.domain.config_upstreams import UPSTREAM
from shared.domain.settings import AbortRules, ClassSettings, RetrySettings, Settings, UpstreamSettings, WebhookSettings
from shared.domain.values import frozen
from shared.errors import ConfigError

PROJECT_CONFIG: Final = Path(__file__).resolve().parents[2] / "sluice.toml"
"""Beside `shared/`, in the repository and in a deployed bundle alike."""


def load_settings(path: Path | None = None) -> Settings:
    """The settings in the file at `path` (the project's own by default), or ConfigError with every fault in it."""
    source = path or PROJECT_CONFIG
    try:
        text = source.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError([fault(source.name, "bytes that are not UTF-8", "a TOML file")]) from error
    except OSError as error:
        raise ConfigError([fault(source.name, error.strerror or "no answer", "a readable TOML file")]) from error
    return parse_settings(text)


def parse_settings(text: str) -> Settings:
    """The settings that `text` says, or ConfigError with every fault in it. No other exception leaves this function."""
    draft = _Draft(faults=[], general={}, upstreams={}, classes={})
    _read_document(_toml(text), draft)
    draft.faults.extend(judge_upstreams(draft.classes, draft.upstreams))
    draft.faults.extend(judge_timeouts(draft.general, draft.classes, draft.upstreams))
    if draft.faults:
        raise ConfigError(draft.faults)
    return Settings(
        **draft.general,
        upstreams={name: UpstreamSettings(name=name, **values) for name, values in draft.upstreams.items()},
        classes={name: ClassSettings(name=name, **values) for name, values in draft.classes.items()},
    )


# -- the text


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_syntax_fault(str(error))]) from error
    except ValueError as error:  # Python's own limit on digits, which tomllib lets through
        raise ConfigError(["sluice.toml: not TOML: a number has too many digits"]) from error
    except RecursionError as error:
        raise ConfigError(["sluice.toml: not TOML: it is nested too deeply"]) from error


def _syntax_fault(message: str) -> str:
    found = re.fullmatch(r"(.*) \(at (.*)\)", message, re.DOTALL)
    reason, place = found.groups() if found else (message, "unknown place")
    return f"sluice.toml, {place}: not TOML: {reason[:160]}"


# -- its tables


@frozen
class _Draft:
    """What has been read so far: the values that are right, and the faults of all others."""

    faults: list[str]
    general: dict[str, Any]
    upstreams: dict[str, dict[str, Any]]
    classes: dict[str, dict[str, Any]]


def _read_document(document: Values, draft: _Draft) -> None:
    draft.faults.extend(_unknown((), document, ("sluice", "webhook", "upstreams", "classes", "producers")))
    general = _table(("sluice",), document.get("sluice", {}), draft.faults)
    draft.general.update(_read(("sluice",), general, GENERAL, draft.faults))
    webhook = _table(("webhook",), document.get("webhook", {}), draft.faults)
    draft.general["webhook"] = WebhookSettings(**_read(("webhook",), webhook, WEBHOOK, draft.faults))
    for name, table in _named("upstreams", document, draft.faults):
        at = ("upstreams", name)
        draft.upstreams[name] = _read(at, table, UPSTREAM, draft.faults)
        if "errors" in table:
            draft.upstreams[name]["errors"] = _read_errors((*at, "errors"), table["errors"], draft.faults)
    for name, table in _named("classes", document, draft.faults):
        at = ("classes", name)
        draft.classes[name] = _read(at, table, CLASS, draft.faults)
        inner = _table((*at, "retry"), table.get("retry", {}), draft.faults)
        retry = _read((*at, "retry"), inner, RETRY, draft.faults)
        draft.classes[name]["retry"] = RetrySettings(**retry)
        inner = _table((*at, "abort"), table.get("abort", {}), draft.faults)
        draft.classes[name]["abort"] = AbortRules(**_read((*at, "abort"), inner, ABORT, draft.faults))
        draft.classes[name]["options"] = _read_options((*at, "options"), table.get("options", {}), draft.faults)
    draft.general["producers"] = read_producers(
        document.get("producers", {}), classes=draft.classes, faults=draft.faults, read=_read
    )
    if document.get("classes", {}) == {}:
        draft.faults.append(fault("classes", "nothing", "at least one [classes.<name>] table"))


def _table(at: tuple[str, ...], value: object, faults: list[str]) -> Values:
    if isinstance(value, dict):
        return value
    faults.append(fault(dotted(*at), kind_of(value), "a table"))
    return {}


def _named(key: str, document: Values, faults: list[str]) -> Iterator[tuple[str, Values]]:
    """The tables under `key` with their names. A badly named one is read all the same: its other faults count too."""
    for name, table in _table((key,), document.get(key, {}), faults).items():
        bad_name = NAME.fault(dotted(key, name), name)
        if bad_name:
            faults.append(bad_name)
        if isinstance(table, dict):
            yield name, table
        else:
            faults.append(fault(dotted(key, name), kind_of(table), "a table"))


def _read(at: tuple[str, ...], table: Values, section: Section, faults: list[str]) -> dict[str, Any]:
    """The section's values, defaults included, without those that have a fault; adds the faults."""
    faults.extend(_unknown(at, table, (*section.rules, *section.inner)))
    values: dict[str, Any] = {}
    for key, rule in section.rules.items():
        if key not in table and key in section.defaults:
            values[key] = section.defaults[key]
        elif key not in table:
            faults.append(fault(dotted(*at, key), "nothing", rule.expected))
        elif bad := rule.fault(dotted(*at, key), table[key]):
            faults.append(bad)
        else:
            values[key] = rule.convert(table[key])
    broken = (law for law in section.laws if values.keys() >= set(law.reads) and not law.holds(values))
    faults.extend(fault(dotted(*at, law.blames), _got(section, law.blames, values), law.expected) for law in broken)
    return values


def _got(section: Section, key: str, values: Values) -> str:
    value = values[key] or None
    return kind_of(value) if section.rules[key].secret else shown(value)


def _read_errors(at: tuple[str, ...], value: object, faults: list[str]) -> dict[int, Any]:
    """The upstream's own answers on top of the defaults: naming a 402 must not make a 429 the job's failure."""
    errors: dict[int, Any] = dict(UpstreamSettings(name="", endpoint="", limit_per_s=1).errors)
    for status, consequence in _table(at, value, faults).items():
        found = [STATUS.fault(dotted(*at, status), status), CONSEQUENCE.fault(dotted(*at, status), consequence)]
        faults.extend(each for each in found if each)
        if not any(found):
            errors[int(status)] = CONSEQUENCE.convert(consequence)
    return errors


def _read_options(at: tuple[str, ...], value: object, faults: list[str]) -> dict[str, str]:
    """Names and strings that only the class's kind understands."""
    options = _table(at, value, faults)
    for name, option in options.items():
        found = [NAME.fault(dotted(*at, name), name), OPTION.fault(dotted(*at, name), option)]
        faults.extend(each for each in found if each)
    return dict(options)


def _unknown(at: tuple[str, ...], table: Values, known: tuple[str, ...]) -> Iterator[str]:
    for key in table:
        if key not in known:
            yield f"{dotted(*at, key)}: unknown key{did_you_mean(key, known)}"
