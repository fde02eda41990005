"""Which models of Bedrock a worker may ask: exactly the one that its upstream names."""

from __future__ import annotations

import re
from typing import Final

import aws_cdk as cdk

from shared.core.settings import UpstreamApi, UpstreamSettings

ANY_REGION: Final = (
    "An inference profile calls its model in whichever region of its geography has room; the grant is on this model"
    " alone."
)

_GEOGRAPHY: Final = re.compile(r"(?:us|us-gov|eu|apac|jp|au|ca|global)\.(?=[^.]+\.)")
"""Begins the id of an inference profile, which calls the model behind it in a region of its own choice."""


def model_arns(stack: cdk.Stack, upstream: UpstreamSettings | None) -> list[str]:
    if upstream is None or upstream.api is not UpstreamApi.CONVERSE:
        return []
    if upstream.model.startswith("arn:"):
        return [upstream.model]
    model, profiles = _of_profile(upstream)
    region = "*" if profiles else stack.region
    own = stack.format_arn(
        service="bedrock", region=region, account="", resource="foundation-model", resource_name=model
    )
    if not profiles:
        return [own]
    return [own, stack.format_arn(service="bedrock", resource="inference-profile", resource_name=upstream.model)]


def region_exceptions(upstream: UpstreamSettings | None) -> dict[str, str]:
    """What cdk-nag is told of the grant on a model: the wildcard in it, if there is one, with its reason."""
    if upstream is None or upstream.api is not UpstreamApi.CONVERSE:
        return {}
    model, profiles = _of_profile(upstream)
    if not profiles:
        return {}
    return {f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:bedrock:*::foundation-model/{model}]": ANY_REGION}


def _of_profile(upstream: UpstreamSettings) -> tuple[str, int]:
    """The model itself, and 1 where its id is that of a profile."""
    return _GEOGRAPHY.subn("", upstream.model, count=1)
