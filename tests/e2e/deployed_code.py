"""Functions that run changed code: what a test changes in a staged bundle, in place of what was deployed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from ops.local.emulator import Emulator


def deploy_code(emulator: Emulator, code: Path) -> None:
    """Every function of the deployment runs the files below `code` from its next start on."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(each for each in code.rglob("*") if each.is_file()):
            archive.write(path, path.relative_to(code))
    functions = emulator.client("lambda")
    for found in functions.list_functions()["Functions"]:
        if found["Handler"].startswith("functions."):
            functions.update_function_code(FunctionName=found["FunctionName"], ZipFile=packed.getvalue())
