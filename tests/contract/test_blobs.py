"""The object store: ranges out, objects in once."""

from __future__ import annotations

import pytest
from botocore.stub import Stubber

from shared.aws.blobs import S3Blobs
from shared.aws.clients import OBJECTS, Clients
from shared.errors import ObjectMissing, StorageUnavailable
from shared.ports import Blobs
from tests.contract.worlds import AwsWorld, aws_client

KEY = "replays/Köln/1 ?.bin"


@pytest.mark.parametrize(
    ("start", "length", "found"),
    ((0, 4, b"0123"), (8, 2, b"89"), (8, 100, b"89"), (10, 1, b""), (500, 10, b""), (3, 0, b"")),
)
def test_a_range_ends_where_the_object_ends(blobs: Blobs, start: int, length: int, found: bytes) -> None:
    blobs.put_once(KEY, b"0123456789", content_type="application/octet-stream")

    assert blobs.read(KEY, start=start, length=length) == found


def test_an_empty_object_reads_as_nothing(blobs: Blobs) -> None:
    blobs.put_once(KEY, b"", content_type="text/plain")

    assert blobs.read(KEY, start=0, length=10) == b""


def test_a_key_that_does_not_exist_is_missing(blobs: Blobs) -> None:
    with pytest.raises(ObjectMissing):
        blobs.read(KEY, start=0, length=10)


def test_an_object_is_put_once(blobs: Blobs) -> None:
    assert blobs.put_once(KEY, b"first", content_type="text/plain")
    assert not blobs.put_once(KEY, b"second", content_type="text/plain")
    assert blobs.read(KEY, start=0, length=10) == b"first"


def test_a_lost_answer_is_unavailable(aws: AwsWorld) -> None:
    with aws.answers_lost("put_object"), pytest.raises(StorageUnavailable):
        aws.blobs.put_once(KEY, b"first", content_type="text/plain")
    assert not aws.blobs.put_once(KEY, b"first", content_type="text/plain")


@pytest.mark.parametrize(("code", "status"), (("SlowDown", 503), ("InternalError", 500), ("RequestTimeout", 400)))
def test_a_store_that_does_not_answer_is_unavailable(code: str, status: int) -> None:
    client = aws_client()("s3", OBJECTS.config())
    blobs = S3Blobs(Clients(lambda *_: client), "bucket")
    with Stubber(client) as stubber:
        stubber.add_client_error("get_object", code, http_status_code=status)
        stubber.add_client_error("put_object", code, http_status_code=status)
        stubber.add_client_error("put_object", "ConditionalRequestConflict", http_status_code=409)

        with pytest.raises(StorageUnavailable):
            blobs.read(KEY, start=0, length=1)
        for _ in range(2):
            with pytest.raises(StorageUnavailable):
                blobs.put_once(KEY, b"", content_type="text/plain")
