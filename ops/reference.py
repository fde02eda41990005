"""docs/configuration.md, made of the table of keys: `python -m ops.reference` writes it, and a test compares."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from shared.domain import keys
from shared.domain.keys import Entries, Key, Section

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
"""Where the page stands in the repository."""

_WIDTH: Final = 120
"""Pages wrap here, tables apart."""

_INTRODUCTION: Final = """
`sluice.toml` is the one configuration of a deployment, and these are all of its keys. Names end in their unit. A key
without a default must be given. Scenario files of the simulator take the same keys ([simulation.md](simulation.md)).
`python -m ops.reference` makes this page of the table in `shared/domain/keys.py`; change it there.
"""


def page() -> str:
    """The whole page: a part for each table of the document, and what the tables must be to one another."""
    parts = [_part(f"{key}.<name>" if section.named else key, section) for key, section in keys.DOCUMENT.items()]
    relations = [_wrapped(f"- {sentence}") for sentence in keys.RELATIONS]
    between = ["## Between the tables", "", *relations]
    return "\n".join(
        ["# Configuration", _INTRODUCTION, *(line for part in parts for line in (*part, "")), *between, ""]
    )


def _part(name: str, section: Section) -> Iterator[str]:
    """A table of the document under its heading: its keys, the laws between them, and the tables inside it."""
    yield from (f"## `[{name}]`", "", _wrapped(section.about))
    defaults = keys.defaults_of(section.target)
    if section.keys:
        yield from ("", "| key | unit | default | accepted | meaning |", "|---|---|---|---|---|")
        yield from (_row(key, described, defaults) for key, described in section.keys.items())
    if section.laws:
        yield ""
        yield from (_wrapped(f"- `{law.blames}`: {law.expected}.") for law in section.laws)
    for key, inner in section.inner.items():
        yield ""
        if isinstance(inner, Section):
            yield from _part(f"{name}.{key}", inner)
        else:
            yield from _entries(f"{name}.{key}", inner, defaults[key])


def _row(name: str, key: Key, defaults: Mapping[str, Any]) -> str:
    default = _default(key, defaults[name]) if name in defaults else "required"
    cells = (f"`{name}`", key.unit, default, key.rule.expected, key.meaning)
    return f"| {' | '.join(cell.replace('|', '&#124;') or '–' for cell in cells)} |"


def _entries(name: str, entries: Entries, default: Mapping[Any, Any]) -> Iterator[str]:
    """A table whose keys are its writer's own."""
    yield from (f"## `[{name}]`", "", _wrapped(entries.about), "")
    yield _wrapped(f"Each key is {entries.names.expected}; its value is {entries.values.expected}.")
    if default:
        said = ", ".join(f'{key} = "{value}"' for key, value in default.items())
        yield _wrapped(f"The default is `{said}`.")


def _default(key: Key, value: Any) -> str:
    """As TOML would say it; what is not given, or switched off, as such."""
    if value is None or value == "":
        return "`false`" if bool in key.rule.kinds else ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, StrEnum | str) else f"`{value}`"


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
