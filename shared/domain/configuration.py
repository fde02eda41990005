"""The one walker over the table of keys: a TOML document -> validated settings, or every fault in it in one go.

`sluice.toml` is read here, and the simulator's scenario files are read with the same `Walker`. Standard library and
msgspec only: every Lambda imports this at cold start.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from shared.domain import keys
from shared.domain.keys import Entries, Section, Values, did_you_mean, dotted, fault, kind_of, shown
from shared.domain.settings import Settings
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
    return parse_settings(text, file=source.name)


def parse_settings(text: str, *, file: str = PROJECT_CONFIG.name) -> Settings:
    """The settings that `text` says, or ConfigError with every fault in it. No other exception leaves this function."""
    document = read_toml(text, file=file)
    walker = Walker()
    read = walker.document(document)
    faults = [*walker.faults, *(line for broken in keys.RELATIONS.values() for line in broken(read))]
    if document.get("classes", {}) == {}:
        faults.append(fault("classes", "nothing", "at least one [classes.<name>] table"))
    if faults:
        raise ConfigError(faults)
    return Settings(
        **read["sluice"],
        webhook=made(keys.WEBHOOK, read["webhook"]),
        producers=made(keys.PRODUCERS, read["producers"]),
        upstreams={name: made(keys.UPSTREAM, values, name=name) for name, values in read["upstreams"].items()},
        classes={name: made(keys.CLASS, values, name=name) for name, values in read["classes"].items()},
    )


def read_toml(text: str, *, file: str) -> dict[str, Any]:
    """The document that the text is, or ConfigError with the place in `file` where it stops to be TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = re.fullmatch(r"(.*) \(at (.*)\)", str(error), re.DOTALL)
        reason, place = message.groups() if message else (str(error), "unknown place")
        raise ConfigError([f"{file}, {place}: not TOML: {reason[:160]}"]) from error
    except ValueError as error:  # Python's own limit on digits, which tomllib lets through
        raise ConfigError([f"{file}: not TOML: a number has too many digits"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}: not TOML: it is nested too deeply"]) from error


class Walker:
    """Reads tables along their sections. What is right is returned, and the fault of all else is in `faults`.

    `at` is where a table stands in the document, as faults name it: `classes.replay_summary.retry`, or "" for the top.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []

    def document(self, document: Values) -> dict[str, Any]:
        """What is right in a whole `sluice.toml`: the values of each section, by name where its tables have names."""
        self.known("", document, keys.DOCUMENT)
        read: dict[str, Any] = {}
        for key, section in keys.DOCUMENT.items():
            value = document.get(key, {})
            read[key] = self.named(key, value, section) if section.named else self.section(key, value, section)
        return read

    def named(self, at: str, value: object, section: Section) -> dict[str, dict[str, Any]]:
        """Tables with names of their own. A badly named one is read all the same: its other faults count too."""
        read = {}
        for name, table in self.table(at, value).items():
            self._accept(below(at, name), name, keys.NAME)
            read[name] = self.section(below(at, name), table, section)
        return read

    def section(self, at: str, value: object, section: Section) -> dict[str, Any]:
        """The section's values with their defaults; an inner table is there only where the document has one."""
        if not isinstance(value, dict):
            return dict(self.table(at, value))
        self.known(at, value, (*section.keys, *section.inner))
        values = self._values(at, value, section)
        for law in section.laws:
            if values.keys() >= set(law.reads) and not law.holds(values):
                blamed = values[law.blames] or None
                secret = section.keys[law.blames].rule.secret
                self.fault(below(at, law.blames), kind_of(blamed) if secret else shown(blamed), law.expected)
        defaults = keys.defaults_of(section.target)
        for key, inner in section.inner.items():
            if key not in value:
                continue
            if isinstance(inner, Section):
                values[key] = self.section(below(at, key), value[key], inner)
            else:
                values[key] = {**defaults[key], **self._entries(below(at, key), value[key], inner)}
        return values

    def table(self, at: str, value: object) -> Values:
        if isinstance(value, dict):
            return value
        self.fault(at, kind_of(value), "a table")
        return {}

    def known(self, at: str, table: Values, known: Collection[str]) -> None:
        """Every key of the table is one of those."""
        for key in table:
            if key not in known:
                self.faults.append(f"{below(at, key)}: unknown key{did_you_mean(key, known)}")

    def fault(self, at: str, got: str, expected: str) -> None:
        self.faults.append(fault(at, got, expected))

    def _values(self, at: str, table: Values, section: Section) -> dict[str, Any]:
        defaults = keys.defaults_of(section.target)
        values: dict[str, Any] = {}
        for name, key in section.keys.items():
            if name not in table and name in defaults:
                values[name] = defaults[name]
            elif name not in table:
                self.fault(below(at, name), "nothing", key.rule.expected)
            elif self._accept(below(at, name), table[name], key.rule):
                values[name] = key.rule.convert(table[name])
        return values

    def _entries(self, at: str, value: object, entries: Entries) -> dict[Any, Any]:
        read = {}
        for name, entry in self.table(at, value).items():
            right_name = self._accept(below(at, name), name, entries.names)
            if self._accept(below(at, name), entry, entries.values) and right_name:
                read[entries.names.convert(name)] = entries.values.convert(entry)
        return read

    def _accept(self, at: str, value: object, rule: keys.Rule) -> bool:
        wrong = rule.fault(at, value)
        if wrong:
            self.faults.append(wrong)
        return wrong is None


def below(at: str, key: str) -> str:
    """Where a key of the table at `at` stands, as TOML would write it."""
    return f"{at}.{dotted(key)}" if at else dotted(key)


def arguments(section: Section, values: Values) -> dict[str, Any]:
    """The values of a section without a fault, each inner table as the settings that it becomes."""
    return {
        key: made(inner, value) if isinstance(inner := section.inner.get(key), Section) else value
        for key, value in values.items()
    }


def made(section: Section, values: Values, **named: str) -> Any:
    """The settings that the values of a section without a fault become."""
    return section.target(**arguments(section, values), **named)
