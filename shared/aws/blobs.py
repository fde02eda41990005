"""The `Blobs` on S3: ranges out, objects in once."""

from __future__ import annotations

from typing import Final

from botocore.exceptions import ClientError

from shared.aws.clients import Clients, answered, code_of, status_of
from shared.errors import ObjectMissing, StorageUnavailable

_MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound"})
"""The codes of a key that does not exist; the statuses of the other answers that are no faults follow."""
_PAST_THE_END: Final = 416
_EXISTS: Final = 412
_CONFLICT: Final = 409


class S3Blobs:
    """A function needs s3:ListBucket too: without it S3 answers 403 for a key that does not exist."""

    def __init__(self, clients: Clients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    def read(self, key: str, *, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError("a range starts at 0 or later and is not negative")
        if length == 0:
            return b""
        try:
            with answered(StorageUnavailable):
                answer = self._clients.s3.get_object(
                    Bucket=self._bucket, Key=key, Range=f"bytes={start}-{start + length - 1}"
                )
                body: bytes = answer["Body"].read()  # the connection can break here as well
                return body
        except ClientError as error:
            if code_of(error) in _MISSING:
                raise ObjectMissing from error
            if status_of(error) == _PAST_THE_END:
                return b""
            raise

    def put_once(self, key: str, body: bytes, *, content_type: str) -> bool:
        """False may also be our own earlier attempt: keys name what they hold, so either object is the right one."""
        try:
            with answered(StorageUnavailable):
                self._clients.s3.put_object(
                    Bucket=self._bucket, Key=key, Body=body, ContentType=content_type, IfNoneMatch="*"
                )
        except ClientError as error:
            if status_of(error) == _EXISTS:
                return False
            if status_of(error) == _CONFLICT:  # another upload of the key is under way
                raise StorageUnavailable("conflict") from error
            raise
        return True
