"""Keylane's rules for cfn-lint (--append-rules tools/lint). They see AWS::Serverless resources expanded.

E9101  every function writes to a log group of the template, and every log group has a retention
E9102  every queue and every target of an event rule has a dead-letter queue
E9103  no policy allows `*` in actions or all resources, unless Metadata.Keylane.AllowStar says why
E9104  everything that stores or transports data is encrypted
E9105  Rules use only the functions that CloudFormation accepts there
E9106  no functions where CloudFormation, or SAM, takes none
E9107  Rules compare strings, and only with lists that are written out
E9108  no partition of AWS is written out
"""

import re
from collections.abc import Iterator
from typing import Any

from cfnlint.decode import decode
from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

Found = Iterator[tuple[list[str | int], str]]

ENCRYPTED_BY: dict[str, tuple[tuple[str, ...], ...]] = {
    "AWS::SQS::Queue": (("SqsManagedSseEnabled",), ("KmsMasterKeyId",)),
    "AWS::SNS::Topic": (("KmsMasterKeyId",),),
    "AWS::S3::Bucket": (("BucketEncryption", "ServerSideEncryptionConfiguration"),),
    "AWS::MSK::Cluster": (("EncryptionInfo", "EncryptionInTransit", "ClientBroker"),),
    "AWS::ElastiCache::ReplicationGroup": (("TransitEncryptionEnabled",),),
}
"""Properties by type: one of them must be set, and neither to false nor to plain text."""
ALSO_AT_REST = {"AWS::ElastiCache::ReplicationGroup": ("AtRestEncryptionEnabled",)}
RULE_FUNCTIONS = frozenset(
    {
        "Fn::And",
        "Fn::Contains",
        "Fn::EachMemberEquals",
        "Fn::EachMemberIn",
        "Fn::Equals",
        "Fn::If",
        "Fn::Not",
        "Fn::Or",
        "Fn::RefAll",
        "Fn::ValueOf",
        "Fn::ValueOfAll",
        "Ref",
    }
)
TAKE_LISTS = frozenset({"Fn::Contains", "Fn::EachMemberEquals", "Fn::EachMemberIn"})
GIVE_LISTS = frozenset({"Fn::RefAll", "Fn::ValueOf", "Fn::ValueOfAll"})
TAKE_NO_FUNCTIONS = (
    "AWSTemplateFormatVersion",
    "Description",
    "Mappings",
    "Metadata",
    "Parameters",
    "Transform",
)
"""Sections of a template."""
RESOURCE_TAKES_NO_FUNCTIONS = (
    "Condition",
    "CreationPolicy",
    "DeletionPolicy",
    "DependsOn",
    "Type",
    "UpdateReplacePolicy",
)
"""Attributes of a resource. Without AWS::LanguageExtensions, the policies are strings, too."""
NOT_IN_CONDITIONS = frozenset(
    {"Fn::Base64", "Fn::Cidr", "Fn::GetAtt", "Fn::GetAZs", "Fn::If", "Fn::ImportValue"}
)
_HOST = r"amazonaws(?:\\\.|\[\.\]|\.)com"
_CHINA_TOO = r"(?!\((?:\\\.|\[\.\])cn\)\?)"
ONE_PARTITION = re.compile(rf"arn:aws:|{_HOST}{_CHINA_TOO}")
SERVICE_PRINCIPAL = re.compile(r"[a-z-]+\.amazonaws\.com")
"""The same in all partitions; that of CloudWatch Logs names the region, and has the partition's suffix."""
_OFF = (None, False, "false", "PLAINTEXT", "TLS_PLAINTEXT")


def resources(template: Template, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and properties of the template's resources of these types."""
    for name, resource in template.get_resources(list(kinds)).items():
        yield name, resource.get("Properties") or {}


def within(properties: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path of properties, or None."""
    found: Any = properties
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found


def target_of(value: Any) -> str | None:
    """Return the logical id in a Ref or GetAtt, or None."""
    if not isinstance(value, dict):
        return None
    target = value.get("Ref") or value.get("Fn::GetAtt")
    return str(target[0] if isinstance(target, list) else target).partition(".")[0] if target else None


class KeylaneRule(CloudFormationLintRule):
    """A rule that reports violations as (path, sentence)."""

    source_url = "https://docs.aws.amazon.com/wellarchitected/latest/framework/welcome.html"
    tags = ("keylane",)

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return all violations in a template."""
        return [RuleMatch(path, message) for path, message in self.find(cfn)]

    def find(self, cfn: Template) -> Found:
        """Yield path and sentence of each violation."""
        raise NotImplementedError


class FunctionsLog(KeylaneRule):
    """Every function has a log group, and every log group a retention."""

    id = "E9101"
    shortdesc = "Functions write to log groups of the template, which have a retention"
    description = "A log group that Lambda creates itself is kept forever and outlives the stack"

    def find(self, cfn: Template) -> Found:
        """Yield functions without a log group, and log groups without a retention."""
        groups = dict(resources(cfn, "AWS::Logs::LogGroup"))
        for name, properties in resources(cfn, "AWS::Lambda::Function"):
            if target_of(within(properties, ("LoggingConfig", "LogGroup"))) not in groups:
                yield (
                    ["Resources", name, "Properties"],
                    f"{name} has no log group of this template",
                )
        for name, properties in groups.items():
            if "RetentionInDays" not in properties:
                yield ["Resources", name, "Properties"], f"the log group {name} has no RetentionInDays"


class QueuesHaveDeadLetters(KeylaneRule):
    """No message that failed is dropped."""

    id = "E9102"
    shortdesc = "Queues and targets of event rules have dead-letter queues"
    description = "A message that cannot be processed must be kept for inspection"

    def find(self, cfn: Template) -> Found:
        """Yield queues and targets of event rules without a dead-letter queue."""
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
    """Least privilege: policies name actions and resources."""

    id = "E9103"
    shortdesc = "Policies do not allow * in actions or all resources"
    description = "Where that is unavoidable, the resource's Metadata.Keylane.AllowStar says why"

    def find(self, cfn: Template) -> Found:
        """Yield statements that allow too much."""
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
        """Yield all policy statements with their paths."""
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
    """Encryption is on, explicitly."""

    id = "E9104"
    shortdesc = "Everything that stores or transports data is encrypted"
    description = "At rest, and in transit where the type supports it"

    def find(self, cfn: Template) -> Found:
        """Yield resources without encryption."""
        for kind, choices in ENCRYPTED_BY.items():
            for name, properties in resources(cfn, kind):
                path: list[str | int] = ["Resources", name, "Properties"]
                if all(within(properties, each) in _OFF for each in choices):
                    names = " or ".join(".".join(each) for each in choices)
                    yield path, f"{name} is not encrypted: set {names}"
                also = ALSO_AT_REST.get(kind)
                if also and within(properties, also) in _OFF:
                    yield path, f"{name} is not encrypted at rest: set {'.'.join(also)}"


class RulesUseRuleFunctions(KeylaneRule):
    """CloudFormation refuses a change set whose Rules use any other function, whatever the condition says."""

    id = "E9105"
    shortdesc = "Rules use only the functions that CloudFormation accepts there"
    description = (
        "cfn-lint accepts every intrinsic function in Rules; CloudFormation accepts rule functions only"
    )
    source_url = "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/intrinsic-function-reference-rules.html"

    def find(self, cfn: Template) -> Found:
        """Yield functions that Rules may not use."""
        for path, node in _objects(cfn.template.get("Rules"), ["Rules"]):
            for key in node:
                if (key.startswith("Fn::") or key == "Condition") and key not in RULE_FUNCTIONS:
                    yield [*path, key], f"{key} is not a rule function"


class RulesCompareStrings(KeylaneRule):
    """A list of a rule is written out, or comes from a function that gives one: a parameter is a string.

    AWS's page shows no parameter in the place of a list, and no document says that CloudFormation takes one.
    If it does not, it refuses every change set of the template.
    """

    id = "E9107"
    shortdesc = "Rules compare strings, and only with lists that are written out"
    description = "A parameter in a rule is a string; where others need a list of it, they split it"
    source_url = RulesUseRuleFunctions.source_url

    def find(self, cfn: Template) -> Found:
        """Yield parameters in Rules that are lists, and functions in the place of a list."""
        parameters = cfn.template.get("Parameters") or {}
        for path, node in _objects(cfn.template.get("Rules"), ["Rules"]):
            kind = str(parameters.get(node.get("Ref"), {}).get("Type"))
            if kind == "CommaDelimitedList" or kind.startswith("List<"):
                yield (
                    [*path, "Ref"],
                    f"{node['Ref']} is a list: make it a String, and split it where it is used",
                )
            for name in TAKE_LISTS & node.keys():
                lists = node[name] if name == "Fn::EachMemberIn" else node[name][:1]
                for number, each in enumerate(lists):
                    if not _is_list_of_a_rule(each):
                        yield [*path, name, number], f"{name} takes a list that is written out, not {each}"


def _is_list_of_a_rule(node: Any) -> bool:
    if isinstance(node, dict):
        return len(node) == 1 and next(iter(node)) in GIVE_LISTS
    return isinstance(node, list) and not any(map(_is_function, node))


class FunctionsWhereTheyWork(KeylaneRule):
    """Intrinsic functions stand only where they are resolved.

    The template is read again as it is written: SAM's transform takes its Globals out before rules see them,
    and leaves out, without an error, those that are functions.
    """

    id = "E9106"
    shortdesc = "No functions where CloudFormation, or SAM, takes none"
    description = (
        "Sections other than Rules, Conditions, Resources and Outputs; names of conditions and dependencies"
    )
    source_url = (
        "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/intrinsic-function-reference.html"
    )

    def find(self, cfn: Template) -> Found:
        """Yield functions in places where they are not resolved."""
        template, _ = decode(cfn.filename)
        if not isinstance(template, dict):
            return
        for section in TAKE_NO_FUNCTIONS:
            for path, name in _functions(template.get(section), [section]):
                yield path, f"{section} takes no functions, so not {name}"
        for path, name in _functions(template.get("Conditions"), ["Conditions"]):
            if name in NOT_IN_CONDITIONS:
                yield path, f"{name} is not resolved in Conditions"
        for kind, values in (template.get("Globals") or {}).items():
            if str(kind).startswith("Fn::") or _is_function(values):
                yield ["Globals", kind], f"SAM takes no function for Globals.{kind}, only for values in it"
        for section in ("Resources", "Outputs"):
            for name, element in (template.get(section) or {}).items():
                yield from self._attributes(element, [section, name])

    def _attributes(self, element: Any, path: list[str | int]) -> Found:
        for name in (*RESOURCE_TAKES_NO_FUNCTIONS, "Description"):
            if isinstance(element, dict):
                for place, function in _functions(element.get(name), [*path, name]):
                    yield place, f"{name} takes no functions, so not {function}"


class NoPartition(KeylaneRule):
    """ARNs and host names are those of the partition in which the stack is: aws, aws-us-gov, aws-cn."""

    id = "E9108"
    shortdesc = "No partition of AWS is written out"
    description = "${AWS::Partition} and ${AWS::URLSuffix}, and patterns that take amazonaws.com.cn, too"
    source_url = (
        "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/pseudo-parameter-reference.html"
    )

    def find(self, cfn: Template) -> Found:
        """Yield strings with an ARN or host of one partition. A parameter's default is an example."""
        template, _ = decode(cfn.filename)
        for path, text in _strings(template, []):
            is_prose = path[-1] in {"Default", "Description", "AssertDescription"}
            if is_prose or "Fn::Split" in path or SERVICE_PRINCIPAL.fullmatch(text):
                continue
            if found := ONE_PARTITION.search(text):
                yield path, f"{found[0]} is of one partition: use AWS::Partition or AWS::URLSuffix"


def _strings(node: Any, path: list[str | int]) -> Iterator[tuple[list[str | int], str]]:
    """Yield all strings below a node, with their paths."""
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _strings(value, [*path, key])
    elif isinstance(node, list):
        for number, each in enumerate(node):
            yield from _strings(each, [*path, number])


def _is_function(node: Any) -> bool:
    return isinstance(node, dict) and len(node) == 1 and str(next(iter(node))).startswith(("Fn::", "Ref"))


def _functions(node: Any, path: list[str | int]) -> Iterator[tuple[list[str | int], str]]:
    """Yield path and name of all intrinsic functions below a node."""
    for place, found in _objects(node, path):
        for key in found:
            if str(key).startswith("Fn::") or (key == "Ref" and len(found) == 1):
                yield [*place, key], key


def _objects(node: Any, path: list[str | int]) -> Iterator[tuple[list[str | int], dict[Any, Any]]]:
    """Yield all objects at and below a node, with their paths."""
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            yield from _objects(value, [*path, key])
    elif isinstance(node, list):
        for number, each in enumerate(node):
            yield from _objects(each, [*path, number])


def _listed(value: Any) -> list[Any]:
    """Return all values that a property may have: the items of a list, both branches of an Fn::If."""
    if isinstance(value, dict) and "Fn::If" in value:
        return [one for side in value["Fn::If"][1:] for one in _listed(side)]
    if isinstance(value, list):
        return [one for each in value for one in _listed(each)]
    return [] if value is None else [value]
