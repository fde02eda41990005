"""What is shipped, and that it is the same bytes everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.bundle import stage
from shared.errors import ConfigError
from tests.infra.tree import digest, files, plant


def test_the_code_is_shipped_with_the_chosen_configuration_and_without_tests_or_leavings(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree")
    other = root / "other.toml"
    other.write_text("# another\n")
    bundle = stage(root=root, config=other, into=tmp_path / "staged")
    assert files(bundle.code) == [
        "functions/__init__.py",
        "functions/pacer/handler.py",
        "functions/worker/kinds/prompt.txt",
        "functions/worker/kinds/session_sweep.py",
        "functions/worker/kinds/thumbnails.py",
        "shared/__init__.py",
        "shared/domain/job.py",
        "sluice.toml",
    ]
    assert (bundle.code / "sluice.toml").read_text() == "# another\n"


def test_the_layer_holds_the_dependencies_where_python_looks_for_them(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree")
    bundle = stage(root=root, config=root / "sluice.toml", into=tmp_path / "staged")
    assert files(bundle.layer) == [
        "python/aws_lambda_powertools/__init__.py",
        "python/boto3-1.0.dist-info/METADATA",
        "python/boto3/__init__.py",
    ]


def test_what_pip_and_python_leave_behind_on_one_machine_does_not_change_the_bundle(tmp_path: Path) -> None:
    here, there = plant(tmp_path / "here"), plant(tmp_path / "there")
    (there / "build/dependencies/boto3-1.0.dist-info/RECORD").write_text("another machine\n")
    (there / "build/dependencies/bin/jp.py").write_text("#!/another/python\n")
    (there / "shared/domain/__pycache__/job.pyc").write_bytes(b"another time")
    staged = [
        stage(root=root, config=root / "sluice.toml", into=tmp_path / f"staged-{root.name}") for root in (here, there)
    ]
    assert digest(staged[0].code) == digest(staged[1].code)
    assert digest(staged[0].layer) == digest(staged[1].layer)


@pytest.mark.parametrize("missing", ["aws_lambda_powertools", "boto3", "."])
def test_missing_dependencies_are_one_line_that_says_what_to_run(tmp_path: Path, missing: str) -> None:
    root = plant(tmp_path / "tree")
    (root / "build/dependencies" / missing).rename(root / "elsewhere")
    with pytest.raises(ConfigError) as caught:
        stage(root=root, config=root / "sluice.toml", into=tmp_path / "staged")
    assert caught.value.faults == ["build/dependencies: the functions' dependencies are not staged: run make setup"]


def test_compiled_dependencies_are_refused_because_lambda_is_another_machine(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree")
    (root / "build/dependencies/boto3/fast.so").write_bytes(b"\x7fELF")
    with pytest.raises(ConfigError, match=r"fast\.so"):
        stage(root=root, config=root / "sluice.toml", into=tmp_path / "staged")
