"""What is shipped to Lambda: the code with its configuration, and the dependencies as a layer.

Nothing is built here. The dependencies were staged by `make setup`, so a synth needs no Docker, network or credentials,
and two synths of one tree give the same bytes: what differs between machines or runs (compiled files, pip's records,
scripts with an absolute interpreter path) is left out.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from shared.errors import ConfigError

CODE_ROOMS: Final = ("shared", "functions")
DEPENDENCIES: Final = Path("build/dependencies")
CONFIG_NAME: Final = "sluice.toml"

_NEEDED: Final = ("aws_lambda_powertools", "boto3")
_NEVER_SHIPPED: Final = ("__pycache__", "*.pyc", ".*", "tests", "requirements*.txt")
# pip writes these for the installing machine: `bin` scripts name its interpreter, RECORD hashes them.
_MACHINE_OWN: Final = ("bin", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_COMPILED: Final = (".so", ".pyd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Two directories, ready to become assets."""

    code: Path
    layer: Path


def stage(*, root: Path, config: Path, into: Path) -> Bundle:
    """Copy what is shipped from the tree at `root` into the empty directory `into`.

    `config` becomes `sluice.toml` in the root of the code. ConfigError where the dependencies cannot be shipped.
    """
    if faults := _dependency_faults(root / DEPENDENCIES):
        raise ConfigError(faults)
    bundle = Bundle(code=into / "code", layer=into / "layer")
    for room in CODE_ROOMS:
        _copy(root / room, bundle.code / room, leave_out=_NEVER_SHIPPED)
    shutil.copyfile(config, bundle.code / CONFIG_NAME)
    _copy(root / DEPENDENCIES, bundle.layer / "python", leave_out=(*_NEVER_SHIPPED, *_MACHINE_OWN))
    return bundle


def _dependency_faults(dependencies: Path) -> list[str]:
    if not all((dependencies / package).is_dir() for package in _NEEDED):
        return [f"{DEPENDENCIES}: the functions' dependencies are not staged: run make setup"]
    compiled = sorted(path.name for path in dependencies.rglob("*") if path.suffix in _COMPILED)
    if compiled:
        # Staged on this machine, run on Lambda's: only pure Python is the same on both.
        return [f"{DEPENDENCIES}: got compiled files ({', '.join(compiled[:3])}), expected pure Python packages only"]
    return []


def _copy(source: Path, target: Path, *, leave_out: tuple[str, ...]) -> None:
    """Copy a directory's files, contents only: neither times nor modes of this machine."""
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in leave_out):
            continue
        if path.is_dir():
            _copy(path, target / path.name, leave_out=leave_out)
        else:
            shutil.copyfile(path, target / path.name)
