"""docs/configuration.md is what the table of keys says."""

from __future__ import annotations

from ops.reference import PAGE, page


def test_the_page_of_all_keys_is_as_it_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m ops.reference`"
