"""The drawing of the rooms in docs/architecture.md is what `python -m ops.rooms` draws of the code as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ops.rooms import MARK, drawing, followed, imports_in, necessary, replaced, rooms
from tests.architecture import ROOT, our_sources

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def tree_of(root: Path, texts: Mapping[str, str]) -> Path:
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_the_page_shows_what_the_code_imports() -> None:
    assert PAGE.count(MARK) == 1
    assert replaced(PAGE, drawing()) == PAGE, MARK


def test_an_arrow_is_left_out_where_a_longer_way_leads_to_the_same_room(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        {
            "app.py": "from infra.stack import Stack",
            "infra/stack.py": "from shared.domain.job import Job",
            "ops/__main__.py": "from ops.cli import main",
            "ops/cli.py": "def run():\n    import shared.pacer.tick",
            "shared/domain/job.py": "import json",
            "shared/pacer/__init__.py": "import shared.aws",
            "shared/pacer/rate.py": "from shared.domain import job",
            "shared/pacer/tick.py": "from shared.domain.job import Job\nfrom shared.pacer import rate",
            "shared/worker/message.py": "from shared.pacer.rate import learn\nfrom shared.domain import job",
        },
    )
    arrows = rooms(imports_in(tree))
    assert arrows == {
        "app": {"infra"},
        "infra": {"shared.domain"},
        "ops.cli": {"shared.pacer"},
        "shared.domain": set(),
        "shared.pacer": {"shared.domain"},
        "shared.worker": {"shared.domain", "shared.pacer"},
    }
    assert necessary(arrows) == arrows | {"shared.worker": {"shared.pacer"}}
    lines = drawing(tree).splitlines()
    assert "  shared.worker --> shared.pacer" in lines
    assert "  shared.worker --> shared.domain" not in lines


def test_adapters_do_not_count_as_met(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        {
            "shared/aws/ledger.py": "import shared.domain.stats",
            "shared/domain/job.py": "import json",
            "shared/domain/stats.py": "import json",
            "shared/pacer/__init__.py": "import shared.domain.stats",
            "shared/pacer/tick.py": "from shared.domain import job\nfrom shared.aws.ledger import Ledger",
        },
    )
    assert followed("shared.pacer.tick", imports_in(tree)) == {"shared.pacer.tick", "shared.domain.job"}


def test_no_module_is_overlooked() -> None:
    ours = {source.module for source in our_sources() if not source.within("tests") and "__init__" not in source.path}
    assert set(imports_in(ROOT)) == ours
