"""Kinds with dependencies of their own: built for where they run, carried by their workers, and by nobody else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from msgspec.structs import replace

from infra.bundle import KIND_DEPENDENCIES, KINDS, Bundle, Platform, stage
from infra.stack import SluiceStack
from shared.domain.settings import Settings
from shared.errors import ConfigError
from tests.infra.conftest import ROOT, cdk_context
from tests.infra.shape import Shape
from tests.infra.tree import digest, files, plant

WITH_OWN = sorted(path.name.removesuffix(".requirements.txt") for path in (ROOT / KINDS).glob("*.requirements.txt"))
STAGED = pytest.mark.skipif(not (ROOT / KIND_DEPENDENCIES).is_dir(), reason="make setup stages them")
NEWEST_GLIBC = 26
"""Lambda's Python 3.11 runs on Amazon Linux 2."""


def staged(tree: Path, into: Path, *kinds: str, platform: Platform = Platform.LAMBDA) -> Bundle:
    return stage(root=tree, config=tree / "sluice.toml", into=into, kinds=kinds, platform=platform)


def faults(tree: Path, into: Path, *kinds: str, platform: Platform = Platform.LAMBDA) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        staged(tree, into, *kinds, platform=platform)
    return raised.value.faults


# -- the bundle


def test_a_kind_brings_the_dependencies_of_the_platform_that_it_runs_on(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree")
    for platform, content in ((Platform.LAMBDA, ""), (Platform.HOST, "HOST = 1\n")):
        bundle = staged(tree, tmp_path / platform, "thumbnails", "session_sweep", platform=platform)
        assert set(bundle.kind_layers) == {"thumbnails"}
        assert files(bundle.kind_layers["thumbnails"]) == ["python/PIL/__init__.py"]
        assert (bundle.kind_layers["thumbnails"] / "python/PIL/__init__.py").read_text() == content
        assert not any("PIL" in name for name in files(bundle.layer))


def test_a_kind_that_no_class_names_brings_nothing(tmp_path: Path) -> None:
    assert staged(plant(tmp_path / "tree"), tmp_path / "out", "session_sweep").kind_layers == {}


def test_a_kind_that_does_not_exist_is_told_before_it_is_deployed(tmp_path: Path) -> None:
    assert faults(plant(tmp_path / "tree"), tmp_path / "out", "thumbnail", "session_sweep") == [
        "kind thumbnail: got no functions/worker/kinds/thumbnail.py, expected the kind's code there"
    ]


def test_dependencies_that_are_not_staged_are_one_line_that_says_what_to_run(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree")
    (tree / "build/kinds/lambda").rename(tree / "elsewhere")
    assert faults(tree, tmp_path / "out", "thumbnails") == [
        "build/kinds/lambda/thumbnails: the kind's dependencies are not staged: run make setup"
    ]


def test_files_compiled_for_another_processor_are_refused_whatever_their_names(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree")
    x86 = b"\x7fELF" + b"\2\1\1" + b"\0" * 9 + b"\3\0" + (62).to_bytes(2, "little")
    for platform in Platform:
        (tree / f"build/kinds/{platform}/thumbnails/libz.so.1.3").write_bytes(x86)
    assert faults(tree, tmp_path / "lambda", "thumbnails") == [
        "build/kinds/lambda/thumbnails: got libz.so.1.3 of another processor, expected arm64: run make setup"
    ]
    assert staged(tree, tmp_path / "host", "thumbnails", platform=Platform.HOST).kind_layers


def test_what_pip_leaves_behind_does_not_change_a_kinds_layer(tmp_path: Path) -> None:
    here, there = plant(tmp_path / "here"), plant(tmp_path / "there")
    (there / "build/kinds/lambda/thumbnails/bin/pilfont").write_text("#!/another/python\n")
    one, other = (staged(tree, tmp_path / f"out-{tree.name}", "thumbnails") for tree in (here, there))
    assert digest(one.kind_layers["thumbnails"]) == digest(other.kind_layers["thumbnails"])


# -- the stack


@pytest.fixture(scope="module")
def shape(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Shape:
    summary, sweep = settings.classes.values()
    classes = {each.name: each for each in (summary, sweep, replace(summary, name="thumbs", kind="thumbnails"))}
    tree = plant(tmp_path_factory.mktemp("packaging") / "tree")
    bundle = staged(tree, tree.parent / "out", "thumbnails")
    app = cdk.App(analytics_reporting=False, context=cdk_context())
    stack = SluiceStack(app, "Sluice", settings=replace(settings, classes=classes), bundle=bundle)
    return Shape(stack=stack, template=Template.from_stack(stack))


def test_only_the_workers_of_a_kind_carry_its_layer(shape: Shape) -> None:
    layers = shape.of_type("AWS::Lambda::LayerVersion")
    (own,) = [key for key in layers if key.startswith("ThumbnailsDependencies")]
    assert layers[own]["Properties"]["CompatibleArchitectures"] == ["arm64"]
    carriers = [
        key
        for key, function in shape.of_type("AWS::Lambda::Function").items()
        if {"Ref": own} in function["Properties"]["Layers"]
    ]
    worker, _ = shape.the_function("sluice-worker", job_class="thumbs")
    assert carriers == [worker]
    assert len(layers) == 2


# -- what make setup has staged


@STAGED
@pytest.mark.parametrize("kind", WITH_OWN)
def test_what_is_staged_for_lambda_loads_on_lambda(kind: str, tmp_path: Path) -> None:
    (tmp_path / "sluice.toml").touch()
    stage(root=ROOT, config=ROOT / "sluice.toml", into=tmp_path / "out", kinds=[kind])  # the processor
    directory = ROOT / KIND_DEPENDENCIES / Platform.LAMBDA / kind
    needed = {
        int(version)
        for path in directory.rglob("*")
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
        for version in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())
    }
    assert max(needed) <= NEWEST_GLIBC


@STAGED
@pytest.mark.parametrize("kind", WITH_OWN)
def test_a_kind_runs_with_what_is_staged_for_the_host_and_with_nothing_else(kind: str) -> None:
    """With the functions' own dependencies, as its worker: the kind's requirements name everything that it imports."""
    paths = [ROOT, ROOT / "build/dependencies", ROOT / KIND_DEPENDENCIES / Platform.HOST / kind]
    code = f"import sys; sys.path[:0] = {[str(path) for path in paths]}; import functions.worker.kinds.{kind}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@STAGED
def test_a_kind_without_requirements_of_its_own_needs_none() -> None:
    plain = sorted(path.stem for path in (ROOT / KINDS).glob("*.py") if path.stem not in (*WITH_OWN, "__init__"))
    code = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'build/dependencies')]}\n"
    code += "\n".join(f"import functions.worker.kinds.{kind}" for kind in plain)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(plain) >= 3


def test_what_a_kind_brings_is_what_the_tests_ran_with() -> None:
    def pins(path: Path) -> set[str]:
        return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}

    everything = pins(ROOT / "requirements.txt")
    for kind in WITH_OWN:
        own = pins(ROOT / KINDS / f"{kind}.requirements.txt")
        assert own <= everything
        assert all("==" in pin for pin in own)
