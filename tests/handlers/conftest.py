"""Everything that was printed, and a deployment after which no canary may be in it."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.handlers.canaries import CONFIG, Site, watched


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], str]) -> Iterator[Site]:
    with watched(CONFIG, tmp_path, monkeypatch, said) as opened:
        yield opened


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Everything printed so far, from any logger. Before our code runs, Lambda's runtime sets the root one to DEBUG."""
    root, out = logging.getLogger(), io.StringIO()
    level, handler = root.level, logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    handler.addFilter(lambda record: not record.name.startswith("moto."))  # no part of what is deployed
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)

    def read() -> str:
        shown = capfd.readouterr()
        assert shown.out, "nothing was printed at all"
        return shown.out + shown.err + out.getvalue()

    yield read
    root.setLevel(level)
    root.removeHandler(handler)
