"""The actions that the stack grants, by what they are for: what the use cases behind the handlers call, and no more.

A test drives each function through its paths and compares (tests/infra/test_grants.py).
"""

from __future__ import annotations

from typing import Final

# What the use cases behind each handler call. A transaction needs the permissions of its parts and has none of its own.
# Nothing ever deletes a row of the ledger, so nobody may.
TICK_ROWS: Final = ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
NOMINATE: Final = ("dynamodb:Query",)
WORK_ROWS: Final = ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:Query")
DEAD_LETTER_ROWS: Final = ("dynamodb:GetItem", "dynamodb:UpdateItem")
SEND: Final = ("sqs:SendMessage",)
CONSUME: Final = (
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
)
OBJECTS: Final = ("s3:GetObject", "s3:PutObject")
EVERY_OBJECT: Final = (
    "An object's name is the digest of what it holds, or of its job, so that no list of them could be granted; nothing"
    " but Sluice's objects lies in the bucket."
)
SUBMIT_ROWS: Final = ("dynamodb:PartiQLInsert", *TICK_ROWS)
SUBMIT_OBJECTS: Final = ("s3:PutObject",)
LIST_GUILDS: Final = ("dynamodb:Scan",)
CONVERSE: Final = ("bedrock:InvokeModel",)
# Or S3 answers 403 for an object that does not exist, which is a job's failure and no fault of the permissions.
MISSING_OBJECTS: Final = ("s3:ListBucket",)
INVOKE: Final = ("lambda:InvokeFunction",)
ADMIT: Final = ("dynamodb:PutItem",)
READ_SWITCH: Final = ("dynamodb:GetItem",)
READ_SECRET: Final = ("secretsmanager:GetSecretValue",)
ROTATE: Final = (
    *READ_SECRET,
    "secretsmanager:DescribeSecret",
    "secretsmanager:PutSecretValue",
    "secretsmanager:UpdateSecretVersionStage",
)
