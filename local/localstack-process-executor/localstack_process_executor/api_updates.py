"""CloudFormation updates of REST APIs, stages, deployments and aliases, which LocalStack 4.14.0 lacks.

Without them a changed route, or a function's new version, makes the update of the whole stack fail.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from localstack.services.cloudformation.resource_provider import OperationStatus, ProgressEvent

if TYPE_CHECKING:
    from localstack.services.cloudformation.resource_provider import ResourceRequest


def apply() -> None:
    """Replace the providers' methods that raise NotImplementedError."""
    from localstack.services.apigateway.resource_providers import (
        aws_apigateway_deployment,
        aws_apigateway_restapi,
        aws_apigateway_stage,
    )
    from localstack.services.lambda_.resource_providers import lambda_alias

    aws_apigateway_restapi.ApiGatewayRestApiProvider.update = update_rest_api
    stage = aws_apigateway_stage.ApiGatewayStageProvider
    stage.update = update_stage
    # A new definition keeps the API's id, so resources that refer to it need not be replaced.
    stage.SCHEMA = {**stage.SCHEMA, "createOnlyProperties": ["/properties/StageName"]}
    deployment = aws_apigateway_deployment.ApiGatewayDeploymentProvider
    deployment.SCHEMA = {**deployment.SCHEMA, "createOnlyProperties": []}
    deployment.update = update_deployment
    deployment.delete = delete_deployment
    alias = lambda_alias.LambdaAliasProvider
    # A function that has changed keeps its name, so its alias need not be replaced.
    alias.SCHEMA = {**alias.SCHEMA, "createOnlyProperties": ["/properties/Name"]}
    alias.update = update_alias


def update_rest_api(_: Any, request: ResourceRequest) -> ProgressEvent:
    """Replace the API's definition; the API keeps its id."""
    model, before = request.desired_state, request.previous_state
    client, api_id = request.aws_client_factory.apigateway, before["RestApiId"]
    model["RestApiId"], model["RootResourceId"] = api_id, before.get("RootResourceId")
    _update_media_types(client, api_id, model.get("BinaryMediaTypes") or [])
    if body := model.get("Body"):
        text = json.dumps(body) if isinstance(body, dict) else body
        parameters = {"basepath": "ignore", **(model.get("Parameters") or {})}
        client.put_rest_api(restApiId=api_id, mode="overwrite", body=text.encode(), parameters=parameters)
        resources = client.get_resources(restApiId=api_id, limit=500)["items"]
        model["RootResourceId"] = next(each["id"] for each in resources if each["path"] == "/")
    return _done(model)


def update_stage(_: Any, request: ResourceRequest) -> ProgressEvent:
    """Point the stage to the new deployment, and update its variables."""
    model, before = request.desired_state, request.previous_state
    model.setdefault("StageName", before["StageName"])
    new, old = model.get("Variables") or {}, before.get("Variables") or {}
    patches = [{"op": "replace", "path": "/deploymentId", "value": model["DeploymentId"]}]
    patches += [{"op": "replace", "path": f"/variables/{name}", "value": new[name]} for name in new]
    patches += [{"op": "remove", "path": f"/variables/{name}"} for name in old if name not in new]
    request.aws_client_factory.apigateway.update_stage(
        restApiId=model["RestApiId"], stageName=model["StageName"], patchOperations=patches
    )
    return _done(model)


def update_deployment(_: Any, request: ResourceRequest) -> ProgressEvent:
    """Change nothing: a deployment is a snapshot of the API."""
    model, before = request.desired_state, request.previous_state
    model["DeploymentId"] = before["DeploymentId"]
    return _done(model)


def update_alias(_: Any, request: ResourceRequest) -> ProgressEvent:
    """Point the alias at the new version."""
    model, before = request.desired_state, request.previous_state
    model["Id"] = before["Id"]
    request.aws_client_factory.lambda_.update_alias(
        FunctionName=model["FunctionName"], Name=model["Name"], FunctionVersion=model["FunctionVersion"]
    )
    return _done(model)


def delete_deployment(_: Any, request: ResourceRequest) -> ProgressEvent:
    """Delete it, unless a stage uses it. LocalStack's own method would delete the stages."""
    model, client = request.desired_state, request.aws_client_factory.apigateway
    api_id, deployment_id = model["RestApiId"], model["DeploymentId"]
    try:
        stages = client.get_stages(restApiId=api_id)["item"]
        if all(stage.get("deploymentId") != deployment_id for stage in stages):
            client.delete_deployment(restApiId=api_id, deploymentId=deployment_id)
    except client.exceptions.NotFoundException:
        pass
    return _done(model)


def _update_media_types(client: Any, api_id: str, wanted: list[str]) -> None:
    present = client.get_rest_api(restApiId=api_id).get("binaryMediaTypes") or []
    changes = [("add", name) for name in wanted if name not in present]
    changes += [("remove", name) for name in present if name not in wanted]
    patches = [{"op": op, "path": f"/binaryMediaTypes/{name.replace('/', '~1')}"} for op, name in changes]
    if patches:
        client.update_rest_api(restApiId=api_id, patchOperations=patches)


def _done(model: Any) -> ProgressEvent:
    return ProgressEvent(status=OperationStatus.SUCCESS, resource_model=model)
