"""The law of the rooms (DESIGN section 4), the limits of style, and a few shapes that broke systems like this one.

Each row of LAWS is one law and two tests: the tree obeys it; and its checker is awake, which means that it complains
about every sample in `caught` and about none in `allowed`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.architecture import (
    IMPURE,
    MAX_FILE_LINES,
    MAX_FUNCTION_LINES,
    MAX_HANDLER_LINES,
    ROOT,
    Checker,
    Source,
    bare_reads,
    dead_modules,
    long_files,
    long_functions,
    never,
    only,
    our_sources,
    stray_environment,
    unfinished,
    work_at_import,
)

AWS_ROOMS = ("shared/aws", "tests", "ops/local", "functions/worker/kinds")
SHIPPED = ("shared", "functions")
LONG_FUNCTION = "\n".join(["def long() -> None:", *["    pass"] * MAX_FUNCTION_LINES])
READS_ENVIRONMENT = "import os\ndef f():\n    return os.environ['A']"
HANDS_ENVIRONMENT_ON = "import os\ndef f():\n    return read_environment(os.environ)"

Samples = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Law:
    says: str
    check: Checker
    caught: Samples
    allowed: Samples = ()


LAWS = (
    Law(
        says="errors import only the standard library",
        check=only("shared/errors.py"),
        caught=(("shared/errors.py", "from shared.core import model"), ("shared/errors.py", "import boto3")),
        allowed=(("shared/errors.py", "import json"),),
    ),
    Law(
        says="the core imports only the standard library and itself",
        check=only("shared/core", "shared.core"),
        caught=(
            ("shared/core/rate.py", "from shared.errors import Refused"),
            ("shared/core/rate.py", "def f():\n    import numpy"),
        ),
        allowed=(("shared/core/rate.py", "import math\nfrom shared.core.model import Job"),),
    ),
    Law(
        says="the core has no clock, no chance, no logging and no input or output",
        check=never(("shared/core",), *IMPURE),
        caught=(("shared/core/rate.py", "import time"), ("shared/core/rate.py", "from logging import getLogger")),
        allowed=(
            ("shared/core/rate.py", "from datetime import datetime"),
            ("shared/usecases/tick.py", "import logging"),
        ),
    ),
    Law(
        says="configuration imports only the standard library, errors and plain settings",
        check=only(
            "shared/config.py",
            "shared.config_abort",
            "shared.config_producers",
            "shared.config_relations",
            "shared.config_rules",
            "shared.config_triggers",
            "shared.config_upstreams",
            "shared.errors",
            "shared.core.settings",
            "shared.core.model",
            "shared.core.values",
        ),
        caught=(("shared/config.py", "import yaml"), ("shared/config.py", "from shared.core.rate import next_rate")),
        allowed=(("shared/config.py", "import tomllib"),),
    ),
    Law(
        says="the rules of configuration import only the standard library and plain settings",
        check=only("shared/config_rules.py", "shared.core.settings", "shared.core.model", "shared.core.values"),
        caught=(("shared/config_rules.py", "import pydantic"),),
        allowed=(("shared/config_rules.py", "from shared.core.settings import Settings"),),
    ),
    Law(
        says="ports import only errors and the core",
        check=only("shared/ports.py", "shared.core", "shared.errors"),
        caught=(("shared/ports.py", "from shared.usecases import tick"), ("shared/ports.py", "import boto3")),
        allowed=(("shared/ports.py", "from typing import Protocol\nfrom shared.core.model import Job"),),
    ),
    Law(
        says="operators' ports import only the core",
        check=only("shared/operator_ports.py", "shared.core"),
        caught=(("shared/operator_ports.py", "import boto3"),),
        allowed=(("shared/operator_ports.py", "from shared.core.model import Lane"),),
    ),
    Law(
        says="use cases import only ports, errors, the core and one another",
        check=only(
            "shared/usecases",
            "shared.usecases",
            "shared.ports",
            "shared.operator_ports",
            "shared.kind",
            "shared.core",
            "shared.errors",
        ),
        caught=(
            ("shared/usecases/work.py", "from shared.aws import queue"),
            ("shared/usecases/work.py", "from shared import config"),
            ("shared/usecases/work.py", "import aws_lambda_powertools"),
        ),
        allowed=(("shared/usecases/work.py", "from shared.ports import Ledger"),),
    ),
    Law(
        says="what ships to Lambda never imports what stays at home",
        check=never(SHIPPED, "infra", "ops", "tests", "app", "aws_cdk", "constructs"),
        caught=(("shared/aws/queue.py", "from ops.sim import world"), ("functions/pacer/handler.py", "import aws_cdk")),
    ),
    Law(
        says="shared never imports functions",
        check=never(("shared",), "functions"),
        caught=(("shared/usecases/work.py", "from functions.worker.kinds import replay_summary"),),
    ),
    Law(
        says="only shared/aws imports boto3",
        check=never(("shared", "functions", "infra", "ops", "app.py"), "boto3", "botocore", but=AWS_ROOMS),
        caught=(
            ("functions/pacer/handler.py", "import boto3"),
            ("infra/stack.py", "from botocore.config import Config"),
            ("ops/cli.py", "def f():\n    import boto3.session"),
        ),
        allowed=(("shared/aws/queue.py", "import boto3"), ("functions/worker/kinds/thumbnail.py", "import boto3")),
    ),
    Law(
        says="infra knows of shared only its configuration and its errors",
        check=only(
            "infra",
            "infra",
            "shared.config",
            "shared.errors",
            "shared.core.settings",
            "shared.core.model.Lane",
            stdlib_only=False,
        ),
        caught=(
            ("infra/stack.py", "from shared.core.pacing import plan_tick"),
            ("infra/stack.py", "from shared.core.model import Job"),
            ("infra/stack.py", "from functions.worker import handler"),
        ),
        allowed=(("infra/stack.py", "import aws_cdk\nfrom shared.config import load_settings"),),
    ),
    Law(
        says="the simulator never imports the AWS adapters",
        check=never(("ops/sim",), "shared.aws", "functions", "infra", "ops.local"),
        caught=(("ops/sim/world.py", "from shared.aws.ledger import DynamoLedger"),),
        allowed=(("ops/cli.py", "from shared.aws import wiring"),),
    ),
    Law(
        says=f"files have at most {MAX_FILE_LINES} lines, handlers {MAX_HANDLER_LINES}",
        check=long_files,
        caught=(
            ("shared/core/rate.py", "pass\n" * (MAX_FILE_LINES + 1)),
            ("functions/pacer/handler.py", "pass\n" * (MAX_HANDLER_LINES + 1)),
        ),
        allowed=(("shared/core/rate.py", "pass\n" * MAX_FILE_LINES),),
    ),
    Law(
        says=f"functions have at most {MAX_FUNCTION_LINES} lines",
        check=long_functions,
        caught=(("shared/core/rate.py", LONG_FUNCTION), ("app.py", LONG_FUNCTION.replace("def", "async def"))),
        allowed=(("shared/core/rate.py", LONG_FUNCTION.removesuffix("    pass")),),
    ),
    Law(
        says="DynamoDB is queried through the one paginating helper",
        check=bare_reads,
        caught=(
            ("shared/aws/ledger.py", "page = client.query(TableName='t')"),
            ("ops/cli.py", "for page in client.get_paginator('scan').paginate():\n    pass"),
        ),
        allowed=(("shared/aws/paging.py", "page = client.query(TableName='t')"),),
    ),
    Law(
        says="importing a module builds no client and reads no environment",
        check=work_at_import,
        caught=(
            ("shared/aws/queue.py", "import boto3\nclient = boto3.client('sqs')"),
            ("shared/aws/queue.py", "import boto3\nclass Queue:\n    session = boto3.session.Session()"),
            ("functions/pacer/handler.py", "import os\nTABLE = os.environ['SLUICE_TABLE']"),
            ("functions/pacer/handler.py", "import os\ndef f(table=os.getenv('SLUICE_TABLE')):\n    pass"),
            ("functions/pacer/handler.py", "from os import environ\nif environ.get('A'):\n    pass"),
        ),
        allowed=(
            ("shared/aws/queue.py", "import boto3\ndef client():\n    return boto3.client('sqs')"),
            ("ops/local/emulator.py", "import os\nif __name__ == '__main__':\n    print(os.environ)"),
        ),
    ),
    Law(
        says="only shared/config.py reads the environment, as it is handed to it",
        check=stray_environment,
        caught=(
            ("shared/aws/wiring.py", READS_ENVIRONMENT),
            ("functions/pacer/handler.py", READS_ENVIRONMENT.replace("environ['A']", "getenv('A')")),
            ("functions/pacer/handler.py", "from os import environ"),
        ),
        allowed=(("shared/aws/wiring.py", HANDS_ENVIRONMENT_ON), ("ops/cli.py", READS_ENVIRONMENT)),
    ),
    Law(
        says="every module is imported by production code or is an entry point",
        check=dead_modules,
        caught=(("shared/core/orphan.py", "import json"), ("ops/orphan.py", "import ops.orphan")),
        allowed=(
            ("functions/pacer/handler.py", "import json"),
            ("functions/worker/kinds/replay_summary.py", "import json"),
            ("ops/local/demo.py", 'if __name__ == "__main__":\n    pass'),
        ),
    ),
    Law(
        says="nothing is left for later",
        check=unfinished,
        caught=(
            ("shared/core/rate.py", "# TO_DO: later".replace("_", "")),
            ("tests/unit/test_rate.py", "# FIX_ME".replace("_", "")),
        ),
        allowed=(("shared/core/rate.py", "# what is left to do is in the ledger"),),
    ),
)

each_law = pytest.mark.parametrize("law", LAWS, ids=[law.says for law in LAWS])


@each_law
def test_the_tree_obeys_the_law(law: Law) -> None:
    found = law.check(our_sources())

    assert not found, "\n".join(found)


@each_law
def test_the_checker_of_the_law_is_awake(law: Law) -> None:
    for path, text in law.caught:
        assert law.check([Source(path, text)]), f"did not catch {text!r} in {path}"
    assert law.check([Source(path, text) for path, text in law.allowed]) == []


def test_a_module_that_only_tests_import_is_dead() -> None:
    module, test = Source("shared/core/rate.py", ""), Source("tests/test_rate.py", "from shared.core import rate")

    assert dead_modules([module, test])
    assert dead_modules([module, Source("shared/usecases/tick.py", "from shared.core.rate import f")]) == [
        "shared/usecases/tick.py is imported by nothing"
    ]


def test_the_checkers_read_the_real_tree() -> None:
    paths = {source.path for source in our_sources()}

    assert {"shared/errors.py", "tests/test_architecture.py"} <= paths
    assert not any(path.startswith((".venv/", "node_modules/", "build/", "cdk.out/")) for path in paths)


def test_what_ships_is_what_the_tests_ran_with() -> None:
    ours, shipped = pins("requirements.txt"), pins("functions/requirements.txt")

    assert shipped <= ours
    assert all("==" in pin for pin in ours | pins("ops/local/requirements.txt"))  # nothing unpinned, no index address


def pins(path: str) -> set[str]:
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}
