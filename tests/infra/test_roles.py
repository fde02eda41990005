"""Who may do what, action by action."""

from __future__ import annotations

from tests.infra.shape import Json, Shape, many

ROWS = {"Ledger.Arn"}
INDEX = {"Ledger.Arn/index/work"}
SUMMARY_QUEUES = {"ReplaySummaryLiveQueue.Arn", "ReplaySummaryRecoveryQueue.Arn"}
SWEEP_QUEUES = {"SessionSweepLiveQueue.Arn", "SessionSweepRecoveryQueue.Arn"}
DEAD_LETTERS = {
    f"{name}{lane}DeadLetters.Arn" for name in ("ReplaySummary", "SessionSweep") for lane in ("Live", "Recovery")
}


def role_of(function: Json) -> str:
    role: str = function["Role"]["Fn::GetAtt"][0]
    return role


def own_log(shape: Shape, function: Json) -> dict[str, set[str]]:
    """What every function may do with its own log group, and no other's."""
    group = {f"{function['LoggingConfig']['LogGroup']['Ref']}.Arn"}
    return {"logs:CreateLogStream": group, "logs:PutLogEvents": group}


def test_the_pacer_claims_counts_and_sends(shape: Shape) -> None:
    _, pacer = shape.the_function("sluice-pacer")
    queues = SUMMARY_QUEUES | SWEEP_QUEUES
    assert shape.grants(role_of(pacer)) == own_log(shape, pacer) | {
        "dynamodb:GetItem": ROWS,
        "dynamodb:BatchGetItem": ROWS,
        "dynamodb:PutItem": ROWS,
        "dynamodb:UpdateItem": ROWS,
        "dynamodb:Query": INDEX,
        "sqs:SendMessage": queues | {"LostTicks.Arn"},
    }


def test_a_worker_commits_continues_and_keeps_to_its_own_queues(shape: Shape) -> None:
    sessions = {"arn:AWS::Partition:dynamodb:AWS::Region:AWS::AccountId:table/game-sessions"}
    own_tables = {"dynamodb:Scan": sessions, "dynamodb:DeleteItem": sessions}
    for job_class, queues, tables in (
        ("replay_summary", SUMMARY_QUEUES, {}),
        ("session_sweep", SWEEP_QUEUES, own_tables),  # its kind's table, and nobody else's to delete in
    ):
        _, worker = shape.the_function("sluice-worker", job_class=job_class)
        assert (
            shape.grants(role_of(worker))
            == own_log(shape, worker)
            | {
                "dynamodb:GetItem": ROWS,
                "dynamodb:PutItem": ROWS,
                "dynamodb:UpdateItem": ROWS,
                "dynamodb:Query": ROWS,
                "sqs:ReceiveMessage": queues,
                "sqs:DeleteMessage": queues,
                "sqs:ChangeMessageVisibility": queues,
                "sqs:GetQueueAttributes": queues,
                "sqs:SendMessage": queues,  # an event source's grant has none: continuations need their own (fact F14)
                "s3:GetObject": {"Payloads.Arn/*"},
                "s3:PutObject": {"Payloads.Arn/*"},
                "s3:ListBucket": {"Payloads.Arn"},  # a missing object is a 404 and not a 403
            }
            | tables
        )


def test_the_dead_letter_reader_tells_the_row_and_sends_nothing(shape: Shape) -> None:
    _, reader = shape.the_function("sluice-dead-letter")
    assert shape.grants(role_of(reader)) == own_log(shape, reader) | {
        "dynamodb:GetItem": ROWS,
        "dynamodb:UpdateItem": ROWS,
        "sqs:ReceiveMessage": DEAD_LETTERS,
        "sqs:DeleteMessage": DEAD_LETTERS,
        "sqs:ChangeMessageVisibility": DEAD_LETTERS,
        "sqs:GetQueueAttributes": DEAD_LETTERS,
    }


def test_the_schedules_may_invoke_the_pacer_and_report_what_they_could_not_deliver(shape: Shape) -> None:
    roles = {
        each["Properties"]["Target"]["RoleArn"]["Fn::GetAtt"][0]
        for each in shape.of_type("AWS::Scheduler::Schedule").values()
    }
    (role,) = roles
    pacer_id, _ = shape.the_function("sluice-pacer")
    assert shape.grants(role) == {"lambda:InvokeFunction": {f"{pacer_id}.Arn"}, "sqs:SendMessage": {"LostTicks.Arn"}}
    (trust,) = shape.properties(role)["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_nothing_is_granted_by_wildcard_or_by_a_managed_policy(shape: Shape) -> None:
    for statement in shape.statements():
        assert not [action for action in many(statement["Action"]) if "*" in action]
        assert "*" not in many(statement["Resource"])
    for role in shape.of_type("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role["Properties"]


def test_every_function_has_a_role_of_its_own(shape: Shape) -> None:
    functions = shape.of_type("AWS::Lambda::Function").values()
    assert len({role_of(each["Properties"]) for each in functions}) == len(functions) == 4
