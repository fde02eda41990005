"""What is shipped to Lambda: the code with its configuration, the dependencies as a layer, and a layer per kind that
has dependencies of its own, which only the workers of its classes carry.

Nothing is built here. The dependencies were staged by `make setup`, so a synth needs no Docker, network or credentials,
and two synths of one tree give the same bytes: what differs between machines or runs (compiled files, pip's records,
scripts with an absolute interpreter path) is left out.

Dependencies hold compiled modules, so all are staged twice: as the wheels of Lambda's processor and C library, and for
this machine, where the local emulator runs the functions. A kind names its own in
`functions/worker/kinds/<kind>.requirements.txt`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from shared.errors import ConfigError

CODE_ROOMS: Final = ("shared", "functions")
KINDS: Final = Path("functions/worker/kinds")
DEPENDENCIES: Final = Path("build/dependencies")
KIND_DEPENDENCIES: Final = Path("build/kinds")
CONFIG_NAME: Final = "sluice.toml"

_OF_EVERY_FUNCTION: Final = ("aws_lambda_powertools", "boto3", "msgspec")
_NEVER_SHIPPED: Final = ("memory", "__pycache__", "*.pyc", ".*", "tests", "requirements*.txt", "*.requirements.txt")
# pip writes these for the installing machine: `bin` scripts name its interpreter, RECORD hashes them.
_MACHINE_OWN: Final = ("bin", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_ELF: Final = b"\x7fELF"
_ARM64: Final = 183
"""e_machine of a compiled file that the functions' architecture (infra.function) can load."""


class Platform(StrEnum):
    """Where the functions will run: on Lambda, or on this machine by way of the emulator."""

    LAMBDA = "lambda"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Directories that are ready to become assets. `kind_layers` has one for each kind that brings dependencies."""

    code: Path
    layer: Path
    kind_layers: Mapping[str, Path] = field(default_factory=dict)


def stage(
    *, root: Path, config: Path, into: Path, kinds: Iterable[str] = (), platform: Platform = Platform.LAMBDA
) -> Bundle:
    """Copy what is shipped from the tree at `root` into the empty directory `into`.

    `config` becomes `sluice.toml` in the root of the code; `kinds` are those that its classes name. ConfigError where
    one of them does not exist, or where dependencies cannot be shipped.
    """
    dependencies = root / DEPENDENCIES / platform
    of_kinds = {kind: root / KIND_DEPENDENCIES / platform / kind for kind in sorted(set(kinds)) if _has_own(root, kind)}
    faults = _staged_faults(dependencies, root=root, platform=platform, packages=_OF_EVERY_FUNCTION)
    faults += _kind_faults(root, kinds)
    for staged in of_kinds.values():
        faults += _staged_faults(staged, root=root, platform=platform)
    if faults:
        raise ConfigError(faults)
    layers = {kind: into / "kinds" / kind for kind in of_kinds}
    bundle = Bundle(code=into / "code", layer=into / "layer", kind_layers=layers)
    for room in CODE_ROOMS:
        _copy(root / room, bundle.code / room, leave_out=_NEVER_SHIPPED)
    shutil.copyfile(config, bundle.code / CONFIG_NAME)
    for source, layer in ((dependencies, bundle.layer), *((of_kinds[kind], layers[kind]) for kind in of_kinds)):
        _copy(source, layer / "python", leave_out=(*_NEVER_SHIPPED, *_MACHINE_OWN))
    return bundle


def _has_own(root: Path, kind: str) -> bool:
    return (root / KINDS / f"{kind}.requirements.txt").exists()


def _kind_faults(root: Path, kinds: Iterable[str]) -> list[str]:
    """Found here and not by a worker, whose every job would fail at the import."""
    missing = sorted(kind for kind in set(kinds) if not (root / KINDS / f"{kind}.py").is_file())
    return [f"kind {kind}: got no {KINDS / kind}.py, expected the kind's code there" for kind in missing]


def _staged_faults(staged: Path, *, root: Path, platform: Platform, packages: Iterable[str] = ()) -> list[str]:
    """Why a directory of staged dependencies cannot be shipped; `packages` are those that it holds at least."""
    where = staged.relative_to(root)
    if not all((staged / package).is_dir() for package in (".", *packages)):
        return [f"{where}: the dependencies are not staged: run make setup"]
    foreign = sorted(path.name for path, machine in _machines(staged) if machine != _ARM64)
    if platform is Platform.LAMBDA and foreign:
        return [f"{where}: got {', '.join(foreign[:3])} of another processor, expected arm64: run make setup"]
    return []


def _machines(directory: Path) -> Iterator[tuple[Path, int]]:
    """Every compiled file with the processor that its header names. Known by its first bytes: names are many."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                header = file.read(20)
            if header.startswith(_ELF):
                yield path, int.from_bytes(header[18:20], "little")


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
