"""The template deployed to a LocalStack: build, upload, change set, and the address that answers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from keylane_local.deploy.cloudformation import CloudStack, translate_aws_errors
from keylane_local.deploy.packaging import ARCHITECTURE, LAYER, RUNTIME, archive, layer_archive, packaged
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from keylane_local.servers.localstack import LocalStack

NAME = "keylane"
BUCKET = "keylane-deployments"
STAGE = "local"


@dataclass(frozen=True, slots=True)
class Deployed:
    """What a deployment came to. `api_key` is there where the API asks for one."""

    url: str
    outputs: Mapping[str, str]
    changed: bool
    api_key: str | None = None


def parameters_for(kafka_bootstrap: str, redis_nodes: str, partition_by: str = "") -> dict[str, str]:
    """Return the template's parameters for servers of this machine; all others are the template's own."""
    return {
        "Architecture": ARCHITECTURE,
        "Runtime": RUNTIME,
        "StageName": STAGE,
        "Authorization": "NONE",
        "KafkaBootstrap": kafka_bootstrap,
        "RedisNodes": redis_nodes,
        "RedisTls": "false",
        "PartitionBy": partition_by or "{}",
    }


def deploy(
    localstack: LocalStack,
    parameters: Mapping[str, str],
    build: Path,
    *,
    name: str = NAME,
    template: Path | None = None,
    functions: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Deployed:
    """Deploy the template, or what changed of it; raise StackError where that fails.

    `build` is the folder in which the layer is built, and kept for the next time.
    """
    root = project_root()
    text = (template or root / "template.yaml").read_text(encoding="utf-8")
    progress("builds the layer")
    layer = layer_archive(root, build)

    def archive_of(folder: str) -> bytes:
        if folder == LAYER:
            return layer
        if functions and folder.startswith("functions/"):
            return archive(functions / folder.removeprefix("functions/"))
        return archive(root / folder)

    progress("deploys")
    with translate_aws_errors(), contextlib.closing(localstack.client("s3")) as s3:
        s3.create_bucket(Bucket=BUCKET)

        def upload(key: str, data: bytes) -> str:
            if not _is_there(s3, key):
                s3.put_object(Bucket=BUCKET, Key=key, Body=data)
            return f"s3://{BUCKET}/{key}"

        made = packaged(text, archive_of, upload)
        s3.put_object(Bucket=BUCKET, Key=f"{name}.yaml", Body=made.encode())
    with translate_aws_errors(), contextlib.closing(localstack.client("cloudformation")) as client:
        stack = CloudStack(client, name)
        changed = stack.deploy(f"{localstack.url}/{BUCKET}/{name}.yaml", parameters)
        outputs = stack.outputs()
    return Deployed(url_of(localstack, outputs), outputs, changed, _api_key(localstack, outputs))


def url_of(localstack: LocalStack, outputs: Mapping[str, str]) -> str:
    """Return the API's address: that of the template's output has a name that no DNS knows."""
    return f"{localstack.url}/_aws/execute-api/{outputs['ApiId']}/{outputs['StageName']}"


def _api_key(localstack: LocalStack, outputs: Mapping[str, str]) -> str | None:
    if "ApiKeyId" not in outputs:
        return None
    with contextlib.closing(localstack.client("apigateway")) as client:
        return str(client.get_api_key(apiKey=outputs["ApiKeyId"], includeValue=True)["value"])


def _is_there(s3: object, key: str) -> bool:
    try:
        s3.head_object(Bucket=BUCKET, Key=key)  # type: ignore[attr-defined]
    except ClientError:
        return False
    return True
