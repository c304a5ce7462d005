"""Deployment of the template to LocalStack: build the layer, upload archives, run a change set."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from keylane_local.deploy.cloudformation import CloudStack, translate_aws_errors
from keylane_local.deploy.packaging import (
    ARCHITECTURE,
    LAYER,
    RUNTIME,
    archive,
    build_layer_archive,
    package_template,
)
from keylane_local.servers.localstack import LocalStack
from keylane_local.tools import project_root

NAME = "keylane"
BUCKET = "keylane-deployments"
STAGE = "local"


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployment's result: the API's URL, its key if it requires one, and the template's outputs."""

    url: str
    outputs: Mapping[str, str]
    changed: bool
    api_key: str | None = None


def parameters_for(kafka_bootstrap: str, redis_nodes: str, partition_by: str = "") -> dict[str, str]:
    """Return the template's parameters for servers on this machine; the others keep their defaults."""
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


@dataclass(frozen=True, slots=True)
class Sources:
    """What is deployed; None is the project's own. `build` keeps the built layer for the next deployment."""

    build: Path
    template: Path | None = None


def deploy(
    localstack: LocalStack,
    parameters: Mapping[str, str],
    sources: Sources,
    *,
    name: str = NAME,
    progress: Callable[[str], None] = lambda _: None,
) -> Deployed:
    """Deploy the template, or its changes. Raises StackError."""
    root = project_root()
    text = (sources.template or root / "template.yaml").read_text(encoding="utf-8")
    progress("building the layer")
    code = _Code(root, build_layer_archive(root, sources.build))
    progress("deploying")
    with translate_aws_errors(), contextlib.closing(localstack.client("s3")) as s3:
        s3.create_bucket(Bucket=BUCKET)
        packaged = package_template(text, code.archive, _Uploader(s3).upload)
        s3.put_object(Bucket=BUCKET, Key=f"{name}.yaml", Body=packaged.encode())
    with translate_aws_errors(), contextlib.closing(localstack.client("cloudformation")) as client:
        stack = CloudStack(client, name)
        changed = stack.deploy(f"{localstack.url}/{BUCKET}/{name}.yaml", parameters)
        outputs = stack.outputs()
    return Deployed(api_url(localstack, outputs), outputs, changed, _api_key(localstack, outputs))


@dataclass(frozen=True, slots=True)
class _Code:
    """The folders of code that the template names."""

    root: Path
    layer: bytes

    def archive(self, folder: str) -> bytes:
        """Return the archive of a folder, named as in the template."""
        if folder == LAYER:
            return self.layer
        return archive(self.root / folder)


@dataclass(frozen=True, slots=True)
class _Uploader:
    s3: Any

    def upload(self, key: str, data: bytes) -> str:
        """Upload an archive and return its S3 URI. An existing key is kept: it contains the data's hash."""
        try:
            self.s3.head_object(Bucket=BUCKET, Key=key)
        except ClientError:
            self.s3.put_object(Bucket=BUCKET, Key=key, Body=data)
        return f"s3://{BUCKET}/{key}"


def api_url(localstack: LocalStack, outputs: Mapping[str, str]) -> str:
    """Return the API's URL. That of the template's outputs has a host name that no DNS resolves."""
    return f"{localstack.url}/_aws/execute-api/{outputs['ApiId']}/{outputs['StageName']}"


def _api_key(localstack: LocalStack, outputs: Mapping[str, str]) -> str | None:
    if "ApiKeyId" not in outputs:
        return None
    with contextlib.closing(localstack.client("apigateway")) as client:
        return str(client.get_api_key(apiKey=outputs["ApiKeyId"], includeValue=True)["value"])
