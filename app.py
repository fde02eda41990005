"""The CDK app. `cdk synth -c config=<toml> -c name=<stack> -c stage=<suffix> -c ephemeral=true -c platform=host`, all
of them optional. `platform=host` is for functions that run on this machine, on the local emulator.

No Docker, network, credentials or lookups: the stack knows neither account nor region until it is deployed.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import aws_cdk as cdk
from constructs import Node

from infra.bundle import CONFIG_NAME, Platform, stage
from infra.stack import SluiceStack
from shared.domain.configuration import load_settings
from shared.errors import ConfigError

ROOT = Path(__file__).resolve().parent


def build(app: cdk.App, *, root: Path = ROOT) -> int:
    """Synthesise the tree at `root`. The exit code is 1 where there are faults: they go to stderr, one a line."""
    try:
        config = root / _context(app.node, "config", CONFIG_NAME)
        ephemeral = _context(app.node, "ephemeral", "false", expected="true|false") == "true"
        platform = Platform(_context(app.node, "platform", Platform.LAMBDA, expected="|".join(Platform)))
        stack_name = _stack_name(app.node)
        settings = load_settings(config)
        # CDK copies the assets when the stack is built, so the staged tree need not outlive this block.
        with tempfile.TemporaryDirectory(prefix="sluice-bundle-") as staging:
            kinds = {job_class.kind for job_class in settings.classes.values()}
            bundle = stage(root=root, config=config, into=Path(staging), kinds=kinds, platform=platform)
            SluiceStack(app, stack_name, settings=settings, bundle=bundle, ephemeral=ephemeral)
            app.synth()
    except ConfigError as error:
        sys.stderr.writelines(f"{fault}\n" for fault in error.faults)
        return 1
    return 0


def _stack_name(node: Node) -> str:
    word = r"[A-Za-z][A-Za-z0-9-]{0,40}"
    name = _context(node, "name", "Sluice", expected=word)
    stage_name = _context(node, "stage", "", expected=rf"(?:{word})?")
    return f"{name}-{stage_name}" if stage_name else name


def _context(node: Node, key: str, default: str, *, expected: str = r".+") -> str:
    """A context value as text: `-c` hands in text, `cdk.json` may hold a boolean."""
    value = node.try_get_context(key)
    text = default if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if not re.fullmatch(expected, text):
        raise ConfigError([f"context {key}: got {text!r}, expected {expected}"])
    return text


if __name__ == "__main__":
    sys.exit(build(cdk.App(analytics_reporting=False)))
