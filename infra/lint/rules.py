"""Rules of our own for cfn-lint (--append-rules infra/lint); AWS::Serverless is expanded before they look.

E9101  a function writes to a log group of this template, which has a retention
E9102  a queue has dead letters, and so has what events are sent to
E9103  policies allow no `*` in actions, nor all resources, unless Metadata.Keylane.AllowStar says why
E9104  what keeps or carries data is encrypted
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cfnlint.rules import CloudFormationLintRule, RuleMatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cfnlint.template import Template

    Found = Iterator[tuple[list[str | int], str]]

ENCRYPTED_BY: dict[str, tuple[tuple[str, ...], ...]] = {
    "AWS::SQS::Queue": (("SqsManagedSseEnabled",), ("KmsMasterKeyId",)),
    "AWS::SNS::Topic": (("KmsMasterKeyId",),),
    "AWS::S3::Bucket": (("BucketEncryption", "ServerSideEncryptionConfiguration"),),
    "AWS::MSK::Cluster": (("EncryptionInfo", "EncryptionInTransit", "ClientBroker"),),
    "AWS::ElastiCache::ReplicationGroup": (("TransitEncryptionEnabled",),),
}
"""Of each type the properties one of which must be there, and neither false nor plain text."""
ALSO_AT_REST = {"AWS::ElastiCache::ReplicationGroup": ("AtRestEncryptionEnabled",)}
_OFF = (None, False, "false", "PLAINTEXT", "TLS_PLAINTEXT")


def resources(template: Template, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and properties of the template's resources of these types."""
    for name, resource in template.get_resources(list(kinds)).items():
        yield name, resource.get("Properties") or {}


def within(properties: dict[str, Any], path: tuple[str, ...]) -> Any:
    """What is at a path of properties, None where there is nothing."""
    found: Any = properties
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found


def target_of(value: Any) -> str | None:
    """The logical id that a Ref or GetAtt names."""
    if not isinstance(value, dict):
        return None
    target = value.get("Ref") or value.get("Fn::GetAtt")
    return str(target[0] if isinstance(target, list) else target).partition(".")[0] if target else None


class KeylaneRule(CloudFormationLintRule):
    """A rule that tells what it finds as paths and sentences."""

    source_url = "https://docs.aws.amazon.com/wellarchitected/latest/framework/welcome.html"
    tags = ("keylane",)

    def match(self, cfn: Template) -> list[RuleMatch]:
        """All that is found in a template."""
        return [RuleMatch(path, message) for path, message in self.find(cfn)]

    def find(self, cfn: Template) -> Found:
        """Give paths and sentences."""
        raise NotImplementedError


class FunctionsLog(KeylaneRule):
    """Functions have log groups with a retention."""

    id = "E9101"
    shortdesc = "A function writes to a log group of this template, which has a retention"
    description = "A log group that Lambda makes itself is kept for ever, and outlives the stack"

    def find(self, cfn: Template) -> Found:
        """Functions without a log group, and log groups without a retention."""
        groups = dict(resources(cfn, "AWS::Logs::LogGroup"))
        for name, properties in resources(cfn, "AWS::Lambda::Function"):
            if target_of(within(properties, ("LoggingConfig", "LogGroup"))) not in groups:
                yield ["Resources", name, "Properties"], f"{name} has no log group of this template"
        for name, properties in groups.items():
            if "RetentionInDays" not in properties:
                yield ["Resources", name, "Properties"], f"the log group {name} has no RetentionInDays"


class QueuesHaveDeadLetters(KeylaneRule):
    """Nothing that could not be handled is dropped."""

    id = "E9102"
    shortdesc = "A queue has dead letters, and so has what events are sent to"
    description = "What can't be handled must be kept for somebody to look at"

    def find(self, cfn: Template) -> Found:
        """Queues and targets of events without dead letters."""
        queues = dict(resources(cfn, "AWS::SQS::Queue"))
        policies = [each.get("RedrivePolicy") for each in queues.values()]
        dead = {target_of(each.get("deadLetterTargetArn")) for each in policies if isinstance(each, dict)}
        rules = dict(resources(cfn, "AWS::Events::Rule"))
        aside = [each for rule in rules.values() for each in rule.get("Targets") or ()]
        dead |= {target_of(within(each, ("DeadLetterConfig", "Arn"))) for each in aside}
        for name, properties in queues.items():
            if name not in dead and "RedrivePolicy" not in properties:
                yield ["Resources", name, "Properties"], f"the queue {name} has no RedrivePolicy"
        for name, properties in rules.items():
            for number, target in enumerate(properties.get("Targets") or ()):
                if "DeadLetterConfig" not in target:
                    path: list[str | int] = ["Resources", name, "Properties", "Targets", number]
                    yield path, f"a target of {name} has no DeadLetterConfig"


class NoStar(KeylaneRule):
    """Least privilege: actions and resources are named."""

    id = "E9103"
    shortdesc = "Policies allow no * in actions, nor all resources"
    description = "Metadata.Keylane.AllowStar of the resource says why where it can't be otherwise"

    def find(self, cfn: Template) -> Found:
        """Statements that allow too much."""
        for name, resource in cfn.get_resources().items():
            if within(resource, ("Metadata", "Keylane", "AllowStar")):
                continue
            for path, statement in self._statements(resource, ["Resources", name]):
                if statement.get("Effect") != "Allow":
                    continue
                for action in _listed(statement.get("Action")):
                    if "*" in str(action):
                        yield path, f"{name} allows {action}"
                if "*" in _listed(statement.get("Resource")):
                    yield path, f"{name} allows actions on all resources"

    def _statements(
        self, node: Any, path: list[str | int]
    ) -> Iterator[tuple[list[str | int], dict[str, Any]]]:
        """All statements of policies, with their paths."""
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "Statement":
                    for number, each in enumerate(value if isinstance(value, list) else [value]):
                        place = [*path, key, number] if isinstance(value, list) else [*path, key]
                        yield from ((place, one) for one in _listed(each) if isinstance(one, dict))
                else:
                    yield from self._statements(value, [*path, key])
        elif isinstance(node, list):
            for number, each in enumerate(node):
                yield from self._statements(each, [*path, number])


class DataIsEncrypted(KeylaneRule):
    """Encryption is on, and said so."""

    id = "E9104"
    shortdesc = "What keeps or carries data is encrypted"
    description = "At rest, and on the way where the type has that"

    def find(self, cfn: Template) -> Found:
        """Resources without encryption."""
        for kind, choices in ENCRYPTED_BY.items():
            for name, properties in resources(cfn, kind):
                path: list[str | int] = ["Resources", name, "Properties"]
                if all(within(properties, each) in _OFF for each in choices):
                    names = " or ".join(".".join(each) for each in choices)
                    yield path, f"{name} is not encrypted: {names}"
                also = ALSO_AT_REST.get(kind)
                if also and within(properties, also) in _OFF:
                    yield path, f"{name} is not encrypted at rest: {'.'.join(also)}"


def _listed(value: Any) -> list[Any]:
    """All that a value may be: the items of a list, and both sides of an Fn::If."""
    if isinstance(value, dict) and "Fn::If" in value:
        return [one for side in value["Fn::If"][1:] for one in _listed(side)]
    if isinstance(value, list):
        return [one for each in value for one in _listed(each)]
    return [] if value is None else [value]
