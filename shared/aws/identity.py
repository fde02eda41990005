"""Who AWS says that the caller is."""

from __future__ import annotations

from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from shared.aws.clients import Clients

_NO_ACCOUNT: Final = "000000000000"
"""The account that emulators make up."""


def caller_arn(clients: Clients) -> str | None:
    """The ARN of the credentials in use, an assumed role's session name included. Needs no permission.

    None where AWS does not say: no credentials, no answer, or an emulator, to which everybody is the same.
    """
    try:
        found = clients.identity.get_caller_identity()
    except (BotoCoreError, ClientError):
        return None
    return None if found["Account"] == _NO_ACCOUNT else str(found["Arn"])
