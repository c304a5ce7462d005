"""What AWS refuses in resolved resources, and cfn-lint does not see. Each check yields sentences.

The limits are those of AWS's pages on quotas of Lambda, IAM, SQS, MSK, API Gateway and CloudFormation.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from keylane_build.stack.loading import Resources, of_type
from keylane_build.stack.service_checks import check_services

MAX_PARAMETERS = 200
MAX_LAMBDA_MEMORY_MB = 10_240
MAX_API_TIMEOUT_S = 29
MAX_API_RESOURCES = 300
MAX_STAGE_UPDATES = 80
"""Operations of one UpdateStage. API Gateway documents no number; tools that divide theirs do so at 80."""
MAX_POLICIES_OF_ROLE = 10
MAX_INLINE_POLICIES_CHARACTERS = 10_240
MAX_MANAGED_POLICY_CHARACTERS = 6_144
_NEVER_EMPTY = frozenset(
    {
        "Action",
        "ClientSubnets",
        "NotAction",
        "NotResource",
        "Queues",
        "Resource",
        "SecretArnList",
        "SecurityGroupIds",
        "SecurityGroups",
        "Statement",
        "SubnetIds",
        "Subnets",
        "Targets",
        "UserGroupIds",
        "UserIds",
        "VpcConfigs",
    }
)
"""Properties whose list AWS refuses if it is empty."""

_LONGEST_NAMES = {
    "AWS::ElastiCache::ReplicationGroup": ("ReplicationGroupId", 40),
    "AWS::ElastiCache::User": ("UserId", 40),
    "AWS::ElastiCache::UserGroup": ("UserGroupId", 40),
    "AWS::ElasticLoadBalancingV2::TargetGroup": ("Name", 32),
    "AWS::MSK::Cluster": ("ClusterName", 64),
    "AWS::MSK::ServerlessCluster": ("ClusterName", 64),
    "AWS::SQS::Queue": ("QueueName", 80),
    "AWS::StepFunctions::StateMachine": ("StateMachineName", 80),
}
"""By type the property with the name, and its longest value, where cfn-lint has no such limit."""


def check(resources: Resources) -> Iterator[str]:
    """Yield what is wrong with a stack's resources."""
    for each in _CHECKS:
        yield from each(resources)


def policies(resources: Resources) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all policy documents that grant rights to roles, with the names of their resources."""
    for name, properties in of_type(resources, "AWS::IAM::Role"):
        for policy in properties.get("Policies") or ():
            yield f"{name}.{policy['PolicyName']}", policy["PolicyDocument"]
    for kind in ("AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy", "AWS::IAM::Policy"):
        for name, properties in of_type(resources, kind):
            yield name, properties["PolicyDocument"]


def _lists(resources: Resources) -> Iterator[str]:
    for name, resource in resources.items():
        yield from _empty(resource.get("Properties") or {}, name)


def _empty(node: Any, where: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if value in ([], "") and key in _NEVER_EMPTY:
                yield f"{where}.{key}: AWS refuses an empty one"
            yield from _empty(value, f"{where}.{key}")
    elif isinstance(node, list):
        if "" in node:
            yield f"{where}: the list has an empty string in it, as an empty parameter gives"
        for number, each in enumerate(node):
            yield from _empty(each, f"{where}.{number}")


def _names(resources: Resources) -> Iterator[str]:
    for kind, (key, longest) in _LONGEST_NAMES.items():
        for name, properties in of_type(resources, kind):
            given = str(properties.get(key, ""))
            if len(given) > longest:
                yield f"{name}: the {key} {given} has {len(given)} characters; {longest} are allowed"


def _functions(resources: Resources) -> Iterator[str]:
    reserved: dict[str, int] = {}
    for name, properties in of_type(resources, "AWS::Lambda::Function"):
        if int(properties.get("MemorySize", 128)) > MAX_LAMBDA_MEMORY_MB:
            yield f"{name}: a function has {MAX_LAMBDA_MEMORY_MB} MB at most, not {properties['MemorySize']}"
        if "ReservedConcurrentExecutions" in properties:
            reserved[name] = int(properties["ReservedConcurrentExecutions"])
    for name, properties in of_type(resources, "AWS::Lambda::Alias"):
        provisioned = properties.get("ProvisionedConcurrencyConfig", {"ProvisionedConcurrentExecutions": 0})
        wanted = int(provisioned["ProvisionedConcurrentExecutions"])
        for function, most in reserved.items():
            if name.startswith(function) and wanted > most:
                yield f"{name}: {wanted} provisioned environments, but {most} reserved for {function}"


def _queues_of_functions(resources: Resources) -> Iterator[str]:
    timeouts = {
        properties.get("FunctionName", name): int(properties.get("Timeout", 3))
        for name, properties in of_type(resources, "AWS::Lambda::Function")
    }
    for name, properties in of_type(resources, "AWS::Lambda::EventSourceMapping"):
        function = str(properties["FunctionName"]).rpartition("function:")[2].partition(":")[0]
        timeout, source = timeouts.get(function, 0), str(properties.get("EventSourceArn"))
        for queue, of_queue in of_type(resources, "AWS::SQS::Queue"):
            visibility = int(of_queue.get("VisibilityTimeout", 30))
            if f"-{queue}-" in source and visibility < timeout:
                yield (
                    f"{name}: {queue}'s VisibilityTimeout is {visibility} s; Lambda refuses one below the"
                    f" function's Timeout, {timeout} s"
                )


def _roles(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, "AWS::IAM::Role"):
        attached = len(properties.get("ManagedPolicyArns") or ())
        if attached > MAX_POLICIES_OF_ROLE:
            yield f"{name}: {attached} managed policies; the quota of an account is {MAX_POLICIES_OF_ROLE}"
        inline = sum(_characters(each["PolicyDocument"]) for each in properties.get("Policies") or ())
        if inline > MAX_INLINE_POLICIES_CHARACTERS:
            yield f"{name}: {inline} characters in policies; {MAX_INLINE_POLICIES_CHARACTERS} are allowed"
    for name, properties in of_type(resources, "AWS::IAM::ManagedPolicy"):
        characters = _characters(properties["PolicyDocument"])
        if characters > MAX_MANAGED_POLICY_CHARACTERS:
            yield f"{name}: {characters} characters; {MAX_MANAGED_POLICY_CHARACTERS} are allowed"


def _brokers(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, "AWS::MSK::Cluster"):
        subnets = len(properties["BrokerNodeGroupInfo"]["ClientSubnets"])
        brokers = int(properties["NumberOfBrokerNodes"])
        if brokers % subnets:
            yield f"{name}: {brokers} brokers are no multiple of {subnets} subnets"


def _apis(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, "AWS::ApiGateway::RestApi"):
        paths = properties.get("Body", {}).get("paths", {})
        parts = {"/".join(path.split("/")[: end + 1]) for path in paths for end in range(path.count("/") + 1)}
        if len(parts) > MAX_API_RESOURCES:
            yield f"{name}: {len(parts)} resources; API Gateway takes {MAX_API_RESOURCES}"
        uris = {
            # Preflights are answered by API Gateway itself: they have no function.
            operation.get("x-amazon-apigateway-integration", {}).get("uri", "")
            for operations in paths.values()
            for operation in operations.values()
            if isinstance(operation, dict)
        }
        for function, of_function in of_type(resources, "AWS::Lambda::Function"):
            called = any(f":{of_function.get('FunctionName')}" in uri.replace("/", ":") for uri in uris)
            if called and int(of_function.get("Timeout", 3)) > MAX_API_TIMEOUT_S:
                yield f"{function}: API Gateway waits {MAX_API_TIMEOUT_S} s at most, its Timeout is longer"


def _stages(resources: Resources) -> Iterator[str]:
    """CreateStage takes no settings of methods: they are one update, an operation for each field."""
    for name, properties in of_type(resources, "AWS::ApiGateway::Stage"):
        settings = properties.get("MethodSettings") or ()
        updates = sum(len(each.keys() - {"ResourcePath", "HttpMethod"}) for each in settings)
        if updates > MAX_STAGE_UPDATES:
            yield f"{name}: {updates} settings of methods; an update of a stage takes {MAX_STAGE_UPDATES}"


def _characters(document: Any) -> int:
    """Return the characters that IAM counts, which are those without whitespace."""
    return len(json.dumps(document, separators=(",", ":")))


_CHECKS: tuple[Callable[[Resources], Iterator[str]], ...] = (
    _lists,
    _names,
    _functions,
    _queues_of_functions,
    _roles,
    _brokers,
    _apis,
    _stages,
    check_services,
)
