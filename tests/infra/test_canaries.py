"""I12 in what is deployed: dashboards and alarms are labelled by class, and hold nothing of what jobs are about."""

from __future__ import annotations

import json

from infra.bundle import Bundle
from shared.domain.configuration import parse_settings
from shared.webhook.answer import NO_CLASS
from tests.content.records import LABELS
from tests.handlers.canaries import CONFIG, PATIENT, PAYLOAD, leaks
from tests.infra.conftest import synth_shape


def test_the_template_holds_no_option_of_a_kind_and_labels_metrics_by_class(bundle: Bundle) -> None:
    settings = parse_settings(CONFIG.replace(LABELS, f"{PATIENT}, {PAYLOAD}"))
    assert leaks(str(settings)) == [PAYLOAD, PATIENT]
    shape = synth_shape(settings, bundle, ephemeral=False)
    assert leaks(json.dumps(shape.template.to_json(), ensure_ascii=False)) == []
    labels = {
        (dimension["Name"], json.dumps(dimension["Value"]))
        for alarm in shape.of_type("AWS::CloudWatch::Alarm").values()
        for dimension in alarm["Properties"].get("Dimensions", [])
    }
    classes = {json.dumps(name) for name in (*settings.classes, NO_CLASS)}
    assert {value for name, value in labels if name == "JobClass"} <= classes
    # Those of AWS's own metrics are references to what the stack makes.
    assert {name for name, _ in labels} == {"JobClass", "QueueName", "FunctionName"}
    assert not [
        value for name, value in labels if name != "JobClass" and '"Ref"' not in value and "GetAtt" not in value
    ]
