"""What is shipped: a cold start fetches and unpacks it, and Lambda bounds it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from infra.bundle import CONFIG_NAME, KINDS, stage
from tests.bench.conftest import ROOT, Results

pytestmark = pytest.mark.bench

MOST_CODE_KIB = 1024
MOST_LAYER_MIB = 25
MOST_KIND_MIB = 15
LAMBDA_MIB = 250
"""Lambda's bound on a function with its layers, unpacked."""


def kinds() -> list[str]:
    """All that there are, whatever the project's own configuration uses."""
    return sorted(path.stem for path in (ROOT / KINDS).glob("*.py") if path.stem != "__init__")


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def zipped_size_of(directory: Path, into: Path) -> int:
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(directory))
    return into.stat().st_size


def test_the_assets_are_small(tmp_path: Path, results: Results) -> None:
    bundle = stage(root=ROOT, config=ROOT / CONFIG_NAME, into=tmp_path, kinds=kinds())
    code, layer = size_of(bundle.code), size_of(bundle.layer)
    code_zip, layer_zip = (zipped_size_of(each, tmp_path / f"{each.name}.zip") for each in (bundle.code, bundle.layer))
    code_is = f"{code_zip / 2**10:.0f} KiB zipped, {code / 2**10:.0f} KiB unpacked"
    layer_is = f"{layer_zip / 2**20:.1f} MiB zipped, {layer / 2**20:.1f} MiB unpacked"
    results.add("assets", "the code of every function", code_is, f"{MOST_CODE_KIB} KiB unpacked")
    results.add("assets", "their layer of dependencies", layer_is, f"{MOST_LAYER_MIB} MiB zipped")
    results.add("assets", "both, unpacked", f"{(code + layer) / 2**20:.1f} MiB", f"{LAMBDA_MIB} MiB, by Lambda")
    for kind, own in bundle.kind_layers.items():
        size, zipped = size_of(own), zipped_size_of(own, tmp_path / f"{kind}.zip")
        is_own = f"{zipped / 2**20:.1f} MiB zipped, {size / 2**20:.1f} MiB unpacked"
        results.add("assets", f"what only the workers of {kind} carry", is_own, f"{MOST_KIND_MIB} MiB zipped")
        assert zipped <= MOST_KIND_MIB * 2**20
        assert code + layer + size <= LAMBDA_MIB * 2**20
    assert code <= MOST_CODE_KIB * 2**10
    assert layer_zip <= MOST_LAYER_MIB * 2**20
    assert code + layer <= LAMBDA_MIB * 2**20
