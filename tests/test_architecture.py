"""The law of the rooms (docs/architecture.md), the limits of style, and a few shapes that broke systems like this one.

Each row of LAWS is one law and two tests: the tree obeys it; and its checker is awake, which means that it complains
about every sample in `caught` and about none in `allowed`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.architecture import (
    MAX_FUNCTION_LINES,
    MAX_HANDLER_LINES,
    ROOT,
    Checker,
    Source,
    bare_reads,
    circles,
    dead_modules,
    long_functions,
    long_handlers,
    never,
    only,
    our_sources,
    pure,
    shells_of_others,
    stray_environment,
    unfinished,
    work_at_import,
)

AWS_ROOMS = ("shared/aws", "tests", "ops/local", "functions/worker/kinds")
SHIPPED = ("shared", "functions")
DOMAIN = (
    *("control", "iso_week", "job", "json_text", "keys", "lifecycle", "messages", "numbers", "ordering", "records"),
    *("settings", "stats", "upstream", "work_index"),
)
CONCEPTS = ("shared.pacer", "shared.worker", "shared.submit", "shared.webhook", "shared.operate")
ROOMS_OF_CONCEPTS = ("shared/domain", "shared/steps", *(concept.replace(".", "/") for concept in CONCEPTS))
VALUE_LIBRARY = ("msgspec",)
PURE = (
    *("shared.errors", "shared.kind"),
    *(f"shared.domain.{name}" for name in DOMAIN),
    *(f"shared.pacer.{name}" for name in ("abort", "cost", "decide", "forecast", "measures", "rate")),
    *("shared.pacer.recovery", "shared.pacer.snapshot", "shared.submit.validation"),
    *("shared.worker.permits", "shared.worker.retry", "shared.webhook.request", "shared.operate.capacity"),
)
"""They decide and describe: values in, values out."""
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
        caught=(("shared/errors.py", "from shared.domain import job"), ("shared/errors.py", "import boto3")),
        allowed=(("shared/errors.py", "import json"),),
    ),
    Law(
        says="pure modules import the standard library without clock, chance, files or network, and one another",
        check=pure(PURE, *VALUE_LIBRARY),
        caught=(
            ("shared/pacer/rate.py", "import time"),
            ("shared/pacer/rate.py", "from logging import getLogger"),
            ("shared/pacer/rate.py", "from shared.ports import Ports"),
            ("shared/pacer/rate.py", "from shared.pacer.tick import run_tick"),
            ("shared/pacer/rate.py", "def f():\n    import numpy"),
        ),
        allowed=(
            ("shared/pacer/rate.py", "from datetime import datetime\nfrom shared.domain import stats"),
            ("shared/pacer/tick.py", "import logging"),
        ),
    ),
    Law(
        says="the domain imports itself and the errors",
        check=only("shared/domain", "shared.domain", "shared.errors", *VALUE_LIBRARY),
        caught=(("shared/domain/job.py", "from shared.pacer import rate"), ("shared/domain/job.py", "import yaml")),
        allowed=(("shared/domain/job.py", "import tomllib\nfrom shared.domain.stats import total"),),
    ),
    Law(
        says="ports import only errors and the domain",
        check=only("shared/ports.py", "shared.domain", "shared.errors", *VALUE_LIBRARY),
        caught=(("shared/ports.py", "from shared.pacer import tick"), ("shared/ports.py", "import boto3")),
        allowed=(("shared/ports.py", "from typing import Protocol\nfrom shared.domain.job import Job"),),
    ),
    Law(
        says="concept rooms import the steps, the ports and what lies below them",
        check=never(ROOMS_OF_CONCEPTS, "shared.aws", "shared.memory", "aws_lambda_powertools", "boto3"),
        caught=(
            ("shared/worker/message.py", "from shared.aws import queue"),
            ("shared/pacer/tick.py", "import aws_lambda_powertools"),
        ),
        allowed=(("shared/worker/message.py", "from shared.ports import Ledger"),),
    ),
    Law(
        says="a concept room imports no other one's shell",
        check=shells_of_others(CONCEPTS, PURE),
        caught=(("shared/worker/message.py", "from shared.pacer.tick import run_tick"),),
        allowed=(
            ("shared/worker/message.py", "from shared.worker.context import Lease\nfrom shared.pacer import rate"),
        ),
    ),
    Law(
        says="packages form no circle",
        check=circles,
        caught=(),
    ),
    Law(
        says="what ships to Lambda never imports what stays at home",
        check=never(SHIPPED, "infra", "ops", "tests", "app", "aws_cdk", "constructs"),
        caught=(
            ("shared/aws/queue.py", "from ops.simulator import world"),
            ("functions/pacer/handler.py", "import aws_cdk"),
        ),
    ),
    Law(
        says="shared never imports functions",
        check=never(("shared",), "functions"),
        caught=(("shared/worker/invocation.py", "from functions.worker.kinds import replay_summary"),),
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
        says="infra knows of shared only its domain and its errors",
        check=only("infra", "infra", "shared.domain", "shared.errors", stdlib_only=False),
        caught=(
            ("infra/stack.py", "from shared.pacer.decide import plan_tick"),
            ("infra/stack.py", "from functions.worker import handler"),
        ),
        allowed=(("infra/stack.py", "import aws_cdk\nfrom shared.domain.configuration import load_settings"),),
    ),
    Law(
        says="neither the simulator nor the memory adapters import the AWS adapters",
        check=never(("ops/simulator", "shared/memory"), "shared.aws", "functions", "infra", "ops.local"),
        caught=(
            ("ops/simulator/world.py", "from shared.aws.ledger import DynamoLedger"),
            ("shared/memory/ledger.py", "from shared.aws.ledger import DynamoLedger"),
        ),
        allowed=(("ops/cli.py", "from shared.aws import wiring"),),
    ),
    Law(
        says=f"handlers have at most {MAX_HANDLER_LINES} lines",
        check=long_handlers,
        caught=(("functions/pacer/handler.py", "pass\n" * (MAX_HANDLER_LINES + 1)),),
        allowed=(("shared/pacer/rate.py", "pass\n" * 1000),),
    ),
    Law(
        says=f"functions have at most {MAX_FUNCTION_LINES} lines",
        check=long_functions,
        caught=(("shared/pacer/rate.py", LONG_FUNCTION), ("app.py", LONG_FUNCTION.replace("def", "async def"))),
        allowed=(("shared/pacer/rate.py", LONG_FUNCTION.removesuffix("    pass")),),
    ),
    Law(
        says="DynamoDB is queried through the one paginating helper",
        check=bare_reads,
        caught=(
            ("shared/aws/ledger.py", "page = client.query(TableName='t')"),
            ("ops/cli.py", "for page in client.get_paginator('scan').paginate():\n    pass"),
        ),
        allowed=(("shared/aws/table.py", "page = client.query(TableName='t')"),),
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
        says="only the AWS wiring reads the environment, as it is handed to it",
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
        caught=(("shared/pacer/orphan.py", "import json"), ("ops/orphan.py", "import ops.orphan")),
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
            ("shared/pacer/rate.py", "# TO_DO: later".replace("_", "")),
            ("tests/pacer/test_rate.py", "# FIX_ME".replace("_", "")),
        ),
        allowed=(("shared/pacer/rate.py", "# what is left to do is in the ledger"),),
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


def test_a_circle_of_rooms_and_one_of_modules_is_found() -> None:
    there, back = Source("shared/pacer/a.py", "from ops.b import c"), Source("ops/b.py", "from shared.pacer.d import e")
    onward = Source("shared/pacer/d.py", "from shared.pacer import a")

    assert circles([there, back]) == []
    assert "shared.pacer reaches itself" in circles([there, back, onward])
    assert "shared.pacer.a reaches itself" in circles([there, back, onward])


def test_a_module_that_only_tests_import_is_dead() -> None:
    module, test = Source("shared/pacer/rate.py", ""), Source("tests/test_rate.py", "from shared.pacer import rate")

    assert dead_modules([module, test])
    assert dead_modules([module, Source("shared/pacer/tick.py", "from shared.pacer.rate import f")]) == [
        "shared/pacer/tick.py is imported by nothing"
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
