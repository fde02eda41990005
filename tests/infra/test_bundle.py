"""What is shipped: the same bytes everywhere, built for where they run; what a kind brings, its workers alone carry."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from infra.bundle import DEPENDENCIES, KIND_DEPENDENCIES, KINDS, Bundle, Platform, stage
from shared.domain.settings import Settings
from shared.errors import ConfigError
from tests.infra.conftest import ROOT, synth_shape
from tests.infra.shape import Shape
from tests.infra.tree import compiled_for, digest, files, plant

WITH_OWN = sorted(path.name.removesuffix(".requirements.txt") for path in (ROOT / KINDS).glob("*.requirements.txt"))
STAGED = pytest.mark.skipif(not (ROOT / KIND_DEPENDENCIES).is_dir(), reason="make setup stages them")
NEWEST_GLIBC = 26
"""Lambda's Python 3.11 runs on Amazon Linux 2."""

X86_64, ARM64 = 62, 183


def staged(tree: Path, into: Path, *kinds: str, platform: Platform = Platform.LAMBDA) -> Bundle:
    return stage(root=tree, config=tree / "sluice.toml", into=into, kinds=kinds, platform=platform)


def faults(tree: Path, into: Path, *kinds: str, platform: Platform = Platform.LAMBDA) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        staged(tree, into, *kinds, platform=platform)
    return raised.value.faults


# -- the code and the layer of every function


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
    assert files(staged(plant(tmp_path / "tree"), tmp_path / "out").layer) == [
        "python/aws_lambda_powertools/__init__.py",
        "python/boto3-1.0.dist-info/METADATA",
        "python/boto3/__init__.py",
        "python/msgspec/__init__.py",
    ]


def test_what_pip_and_python_leave_behind_on_one_machine_does_not_change_the_bundle(tmp_path: Path) -> None:
    here, there = plant(tmp_path / "here"), plant(tmp_path / "there")
    (there / "build/dependencies/lambda/boto3-1.0.dist-info/RECORD").write_text("another machine\n")
    (there / "build/dependencies/lambda/bin/jp.py").write_text("#!/another/python\n")
    (there / "build/kinds/lambda/thumbnails/bin/pilfont").write_text("#!/another/python\n")
    (there / "shared/domain/__pycache__/job.pyc").write_bytes(b"another time")
    one, other = (staged(tree, tmp_path / f"out-{tree.name}", "thumbnails") for tree in (here, there))
    assert digest(one.code) == digest(other.code)
    assert digest(one.layer) == digest(other.layer)
    assert digest(one.kind_layers["thumbnails"]) == digest(other.kind_layers["thumbnails"])


# -- dependencies, of every function and of one kind


@pytest.mark.parametrize("platform", Platform)
def test_dependencies_are_those_of_the_platform_that_they_run_on(tmp_path: Path, platform: Platform) -> None:
    content = {Platform.LAMBDA: "", Platform.HOST: "HOST = 1\n"}[platform]
    bundle = staged(plant(tmp_path / "tree"), tmp_path / "out", "thumbnails", "session_sweep", platform=platform)
    assert set(bundle.kind_layers) == {"thumbnails"}
    assert files(bundle.kind_layers["thumbnails"]) == ["python/PIL/__init__.py"]
    assert (bundle.kind_layers["thumbnails"] / "python/PIL/__init__.py").read_text() == content
    assert (bundle.layer / "python/boto3/__init__.py").read_text() == content
    assert not any("PIL" in name for name in files(bundle.layer))


def test_a_kind_that_no_class_names_brings_nothing(tmp_path: Path) -> None:
    assert staged(plant(tmp_path / "tree"), tmp_path / "out", "session_sweep").kind_layers == {}


def test_a_kind_that_does_not_exist_is_told_before_it_is_deployed(tmp_path: Path) -> None:
    assert faults(plant(tmp_path / "tree"), tmp_path / "out", "thumbnail", "session_sweep") == [
        "kind thumbnail: got no functions/worker/kinds/thumbnail.py, expected the kind's code there"
    ]


@pytest.mark.parametrize(
    ("missing", "where"),
    [
        ("dependencies/lambda/aws_lambda_powertools", "dependencies/lambda"),
        ("dependencies/lambda/boto3", "dependencies/lambda"),
        ("dependencies/lambda/msgspec", "dependencies/lambda"),
        ("dependencies/lambda", "dependencies/lambda"),
        ("kinds/lambda", "kinds/lambda/thumbnails"),
    ],
)
def test_what_is_not_staged_is_one_line_that_says_what_to_run(tmp_path: Path, missing: str, where: str) -> None:
    tree = plant(tmp_path / "tree")
    (tree / "build" / missing).rename(tree / "elsewhere")
    assert faults(tree, tmp_path / "out", "thumbnails") == [
        f"build/{where}: the dependencies are not staged: run make setup"
    ]


@pytest.mark.parametrize("where", ["dependencies/{}/boto3", "kinds/{}/thumbnails"])
def test_files_compiled_for_another_processor_are_refused_whatever_their_names(tmp_path: Path, where: str) -> None:
    tree = plant(tmp_path / "tree")
    for platform in Platform:
        (tree / "build" / where.format(platform) / "libz.so.1.3").write_bytes(compiled_for(X86_64))
        (tree / "build" / where.format(platform) / "own.so").write_bytes(compiled_for(ARM64))
    (fault,) = faults(tree, tmp_path / "lambda", "thumbnails")
    assert re.fullmatch(
        r"build/\w+/lambda\S*: got libz\.so\.1\.3 of another processor, expected arm64: run make setup", fault
    )
    assert staged(tree, tmp_path / "host", "thumbnails", platform=Platform.HOST).kind_layers


# -- the stack


@pytest.fixture(scope="module")
def shape(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Shape:
    summary, sweep = settings.classes.values()
    classes = {each.name: each for each in (summary, sweep, replace(summary, name="thumbs", kind="thumbnails"))}
    tree = plant(tmp_path_factory.mktemp("packaging") / "tree")
    bundle = staged(tree, tree.parent / "out", "thumbnails")
    return synth_shape(replace(settings, classes=classes), bundle, ephemeral=False)


def test_only_the_workers_of_a_kind_carry_its_layer(shape: Shape) -> None:
    layers = shape.of_type("AWS::Lambda::LayerVersion")
    (own,) = [key for key in layers if key.startswith("ThumbnailsDependencies")]
    for layer in layers.values():
        assert layer["Properties"]["CompatibleArchitectures"] == ["arm64"]
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
    bundle = stage(root=ROOT, config=ROOT / "sluice.toml", into=tmp_path / "out", kinds=[kind])  # the processor
    for layer in (bundle.layer, bundle.kind_layers[kind]):
        compiled = [path for path in layer.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        needed = {int(version) for path in compiled for version in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())}
        assert needed
        assert max(needed) <= NEWEST_GLIBC
        assert not any("cpython-" in path.name and "cpython-311-aarch64" not in path.name for path in compiled)


def imports(*kinds: str, own: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Import kinds in an interpreter that sees the repository and what is staged for this machine, and nothing else."""
    paths = [str(path) for path in (ROOT, ROOT / DEPENDENCIES / Platform.HOST, *own)]
    code = f"import sys; sys.path[:0] = {paths}\n"
    code += "\n".join(f"import functions.worker.kinds.{kind}" for kind in kinds)
    return subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)


@STAGED
@pytest.mark.parametrize("kind", WITH_OWN)
def test_a_kind_runs_with_what_is_staged_for_the_host_and_with_nothing_else(kind: str) -> None:
    """With the functions' own dependencies, as its worker: the kind's requirements name everything that it imports."""
    done = imports(kind, own=(ROOT / KIND_DEPENDENCIES / Platform.HOST / kind,))
    assert (done.returncode, done.stderr) == (0, "")


@STAGED
def test_a_kind_without_requirements_of_its_own_needs_none() -> None:
    plain = sorted(path.stem for path in (ROOT / KINDS).glob("*.py") if path.stem not in (*WITH_OWN, "__init__"))
    done = imports(*plain)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(plain) >= 3


def pins(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}


@pytest.mark.parametrize(
    "path", ["functions/requirements.txt", *(KINDS / f"{kind}.requirements.txt" for kind in WITH_OWN)], ids=str
)
def test_what_ships_is_pinned_as_the_tests_ran_with_it(path: Path) -> None:
    assert pins(ROOT / path) <= pins(ROOT / "requirements.txt")
    assert all("==" in pin for pin in pins(ROOT / path))
