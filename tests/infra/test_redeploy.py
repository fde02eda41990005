"""A deployment resumes nothing: pause, halt and overrides are rows, and the template writes no row (I10)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from infra.bundle import Bundle
from shared.aws.runtime import ThreadParallel
from shared.aws.wiring import Host, read_environment, wire
from shared.domain.control import RateOverride, SlotsOverride
from shared.domain.job import Flag, NewJob
from shared.domain.settings import ClassSettings, Settings
from shared.pacer.tick import TickRequest, run_tick
from shared.submit.submission import submit_jobs
from tests.contract.moto_world import moto_aws
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld, aws_client
from tests.infra.conftest import synth_shape
from tests.infra.shape import Shape


def test_the_template_holds_no_control_data_and_nothing_that_could_write_any(shape: Shape) -> None:
    for logical_id, resource in shape.resources.items():
        assert not resource["Type"].startswith("Custom::"), f"{logical_id} could write to the ledger at a deployment"
        assert resource["Type"] != "AWS::CloudFormation::CustomResource", logical_id
    assert "ImportSourceSpecification" not in shape.properties("Ledger")
    written = json.dumps(shape.template.to_json())
    for word in ("CLASS#replay_summary", "planned_at_ms", "override_rate", '"halt"', '"pause"'):
        assert word not in written


def test_no_switch_of_the_stack_stands_for_a_pause(shape: Shape) -> None:
    """A disabled schedule or mapping, or a concurrency of 0, would be put back by the next deployment (fact F25)."""
    for schedule in shape.of_type("AWS::Scheduler::Schedule").values():
        assert schedule["Properties"]["State"] == "ENABLED"
    for mapping in shape.of_type("AWS::Lambda::EventSourceMapping").values():
        assert mapping["Properties"]["Enabled"] is True
    for function in shape.of_type("AWS::Lambda::Function").values():
        assert "ReservedConcurrentExecutions" not in function["Properties"]


def test_the_ledger_outlives_every_deployment(shape: Shape) -> None:
    table = shape.resources["Ledger"]

    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")


def mappings(bundle: Bundle, **changes: Any) -> dict[str, Any]:
    settings = Settings(classes={CLASS: ClassSettings(name=CLASS, kind="sim", slots=20, **changes)})
    found = synth_shape(settings, bundle, ephemeral=True).of_type("AWS::Lambda::EventSourceMapping")
    return {key: each for key, each in found.items() if "DeadLetters" not in json.dumps(each["Properties"])}


def test_only_what_is_said_to_write_a_mapping_anew_changes_it_in_the_template(bundle: Bundle) -> None:
    """CloudFormation updates a resource whose properties changed since the last template, and no other: so a
    MaximumConcurrency that `ops concurrency` set outlives every deployment but those (docs of the command)."""
    before = mappings(bundle)

    assert len(before) == 2
    assert mappings(bundle, memory_mb=1024, function_timeout_s=60, max_inflight=50, tick_interval_s=120) == before
    for change in ({"live_share": 0.5}, {"batch_size": 5}):
        after = mappings(bundle, **change)
        assert after.keys() == before.keys(), "written anew, never replaced"
        assert all(after[key] != before[key] for key in before), change


def test_another_version_over_the_same_ledger_resumes_nothing_and_forgets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with moto_aws():
        world = AwsWorld(aws_client())
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", world.name)  # a logger of its own
        flag = Flag(by="ada", why="odd answers", at_ms=NOW_MS)
        before = deployed(world, slots=20)
        submit_jobs(
            before.ports,
            before.settings,
            [NewJob(job_id=f"j{n}", job_class=CLASS, match_id=f"m{n}", payload="{}") for n in range(5)],
        )
        before.ports.ledger.set_pause(CLASS, flag)
        before.ports.ledger.set_halt(CLASS, flag)
        bound = RateOverride(rate_per_s=0.5, flag=flag)
        before.ports.ledger.set_rate(CLASS, bound)
        fewer = SlotsOverride(slots=8, flag=flag, before=20, verified_ms=NOW_MS)
        before.ports.ledger.set_slots(CLASS, fewer, before=None)
        after = deployed(world, slots=40)
        now_ms = after.ports.clock.now_ms()
        request = TickRequest(scheduled_ms=now_ms, source="schedule", nonce="new", deadline_ms=now_ms + 45_000)
        report = run_tick(after.ports, after.settings.classes[CLASS], None, request)

        assert (report.outcome, report.admitted) == ("closed", 0)
        control = after.ports.ledger.read_control(CLASS)
        assert (control.pause, control.halt, control.rate, control.slots) == (flag, flag, bound, fewer)
        facts = json.loads(control.history[-1].facts)
        assert (facts["concurrency"], facts["override_rate_per_s"]) == (8, 0.5), "what is deployed does not win"
        assert control.history[-1].waiting.total == 5, "nothing is lost, and it is seen"


def deployed(world: AwsWorld, *, slots: int) -> Host:
    """A host as a deployment with these settings makes it."""
    urls = {lane.value: url for lane, url in world.urls.items()}
    names = {"SLUICE_TABLE": world.name, "SLUICE_BUCKET": world.name, "SLUICE_QUEUES": json.dumps({CLASS: urls})}
    settings = Settings(classes={CLASS: ClassSettings(name=CLASS, kind="sim", slots=slots)})
    host = wire(read_environment(names), settings, clients=world.clients)
    return replace(host, ports=replace(host.ports, parallel=ThreadParallel(1)))  # fact F34
