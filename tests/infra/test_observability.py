"""Logs that expire, queues that are watched, functions that know where they are."""

from __future__ import annotations

from tests.infra.shape import Shape, environment, text


def test_every_function_writes_to_a_log_group_of_its_own_that_expires(shape: Shape) -> None:
    groups = [
        each["Properties"]["LoggingConfig"]["LogGroup"]["Ref"]
        for each in shape.of_type("AWS::Lambda::Function").values()
    ]
    assert sorted(groups) == sorted(shape.of_type("AWS::Logs::LogGroup"))
    assert {shape.properties(group)["RetentionInDays"] for group in groups} == {30}


def test_every_function_knows_the_stores_and_its_name_in_the_metrics(shape: Shape) -> None:
    for function in shape.of_type("AWS::Lambda::Function").values():
        variables = environment(function["Properties"])
        assert variables["SLUICE_TABLE"] == {"Ref": "Ledger"}
        assert variables["SLUICE_BUCKET"] == {"Ref": "Payloads"}
        assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "SluiceTest"
        assert variables["POWERTOOLS_LOG_LEVEL"] == "INFO"
        assert set(variables) == {
            "SLUICE_TABLE",
            "SLUICE_BUCKET",
            "SLUICE_QUEUES",
            "POWERTOOLS_METRICS_NAMESPACE",
            "POWERTOOLS_LOG_LEVEL",
            "POWERTOOLS_SERVICE_NAME",
        }


def test_every_queue_that_should_be_empty_has_an_alarm_on_its_visible_messages(shape: Shape) -> None:
    watched = {
        text(alarm["Properties"]["Dimensions"][0]["Value"])
        for alarm in shape.of_type("AWS::CloudWatch::Alarm").values()
        if alarm["Properties"]["MetricName"] == "ApproximateNumberOfMessagesVisible"
    }
    should_be_empty = {key for key in shape.of_type("AWS::SQS::Queue") if not key.endswith("Queue")}
    assert watched == {f"{queue}.QueueName" for queue in should_be_empty}


def test_the_outputs_name_what_operators_need(shape: Shape) -> None:
    assert set(shape.template.to_json()["Outputs"]) == {
        "TableName",
        "BucketName",
        "PacerName",
        "QueueUrls",
        "AlarmTopicArn",
        "DashboardUrl",
    }
