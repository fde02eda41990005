"""A small repository to bundle and synthesise, with the leavings that a real one has, and digests of directories."""

from __future__ import annotations

import hashlib
from pathlib import Path

CONFIG = """
[sluice]
namespace = "Tree"

[classes.session_sweep]
kind = "session_sweep"
options.sessions_table = "game-sessions"
"""

_FILES = {
    "sluice.toml": CONFIG,
    "shared/__init__.py": "",
    "shared/domain/job.py": "VALUE = 1\n",
    "shared/domain/__pycache__/job.pyc": "compiled",
    "shared/stray.pyc": "compiled",
    "functions/__init__.py": "",
    "functions/pacer/handler.py": "def handler(event, context): ...\n",
    "functions/pacer/.handler.py.swp": "an editor's",
    "functions/worker/kinds/prompt.txt": "Summarise.\n",
    "functions/worker/kinds/session_sweep.py": "import json\n",
    "functions/worker/kinds/thumbnails.py": "import PIL\n",
    "functions/worker/kinds/thumbnails.requirements.txt": "pillow\n",
    "functions/worker/tests/test_worker.py": "",
    "functions/requirements.txt": "boto3\n",
    "build/dependencies/lambda/aws_lambda_powertools/__init__.py": "",
    "build/dependencies/lambda/boto3/__init__.py": "",
    "build/dependencies/lambda/boto3/__pycache__/__init__.pyc": "compiled",
    "build/dependencies/lambda/boto3-1.0.dist-info/METADATA": "Name: boto3\n",
    "build/dependencies/lambda/boto3-1.0.dist-info/RECORD": "this machine\n",
    "build/dependencies/lambda/bin/jp.py": "#!/this/python\n",
    "build/dependencies/lambda/msgspec/__init__.py": "",
    "build/dependencies/host/aws_lambda_powertools/__init__.py": "",
    "build/dependencies/host/boto3/__init__.py": "HOST = 1\n",
    "build/dependencies/host/msgspec/__init__.py": "",
    "build/kinds/lambda/thumbnails/PIL/__init__.py": "",
    "build/kinds/lambda/thumbnails/bin/pilfont": "#!/this/python\n",
    "build/kinds/host/thumbnails/PIL/__init__.py": "HOST = 1\n",
}


def plant(root: Path) -> Path:
    """Write the tree to `root`, which need not exist."""
    for name, content in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def digest(directory: Path) -> str:
    """One hash over every file's name and content."""
    total = hashlib.sha256()
    for name in files(directory):
        content = hashlib.sha256((directory / name).read_bytes()).hexdigest()
        total.update(f"{content} {name}\n".encode())
    return total.hexdigest()


def compiled_for(machine: int) -> bytes:
    """The head of a compiled file (ELF, little-endian) that names the processor which it is for."""
    return b"\x7fELF" + b"\2\1\1" + b"\0" * 9 + b"\3\0" + machine.to_bytes(2, "little")
