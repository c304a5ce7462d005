"""cfn-lint with our rules: each finds what it is there for. `make lint-infra` runs it on the templates."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.support.cloudformation import ROOT

from keylane_build import templates

pytestmark = pytest.mark.integration

ROLE = """
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument:
        Statement: [{Effect: Allow, Principal: {Service: lambda.amazonaws.com}, Action: "sts:AssumeRole"}]
      Policies:
        - PolicyName: own
          PolicyDocument:
            Statement: [{Effect: Allow, Action: %s, Resource: %s}]
"""
FUNCTION = """
  Function:
    Type: AWS::Lambda::Function
    Properties:
      Runtime: python3.13
      Handler: index.handler
      Role: !Sub arn:${AWS::Partition}:iam::123456789012:role/some
      Code: {ZipFile: "def handler(event, context): pass"}
"""
EVENTS = """
  Rule:
    Type: AWS::Events::Rule
    Properties:
      EventPattern: {source: [keylane]}
      Targets: [{Id: one, Arn: !Sub "arn:${AWS::Partition}:sns:us-east-1:123456789012:topic"}]
"""
CACHE = """
  Cache:
    Type: AWS::ElastiCache::ReplicationGroup
    DeletionPolicy: Delete
    UpdateReplacePolicy: Delete
    Properties: {ReplicationGroupDescription: c, Engine: redis, CacheNodeType: cache.r7g.large, %s}
"""
RULES = """
Parameters: {SubnetIds: {Type: %s, Default: ""}}
Rules:
  Subnets:
    RuleCondition: !Not [%s]
    Assertions: [{Assert: !Equals [a, b], AssertDescription: none}]
Resources:
  Topic: {Type: AWS::SNS::Topic, Properties: {KmsMasterKeyId: alias/own}}
"""
KEPT = "    DeletionPolicy: Delete\n    UpdateReplacePolicy: Delete\n"
REDRIVE = "RedrivePolicy: {deadLetterTargetArn: a, maxReceiveCount: 1}"
ARN = "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:q"
BROKEN = {
    "a function without a log group": ("E9101", FUNCTION),
    "a log group that is kept for ever": (
        "E9101",
        f"  Group:\n    Type: AWS::Logs::LogGroup\n{KEPT}    Properties: {{LogGroupName: a}}\n",
    ),
    "a queue without dead letters": (
        "E9102",
        f"  Queue:\n    Type: AWS::SQS::Queue\n{KEPT}    Properties: {{SqsManagedSseEnabled: true}}\n",
    ),
    "a target of events without dead letters": ("E9102", EVENTS),
    "a star in actions": ("E9103", ROLE % ('"sqs:*"', f"!Sub '{ARN}'")),
    "all resources, where a condition holds": (
        "E9103",
        ROLE % ('"sqs:SendMessage"', f"!If [IsHere, '*', !Sub '{ARN}']"),
    ),
    "all resources": ("E9103", ROLE % ('["sqs:SendMessage"]', "['*']")),
    "a queue that is not encrypted": (
        "E9104",
        f"  Queue:\n    Type: AWS::SQS::Queue\n{KEPT}    Properties: {{{REDRIVE}}}\n",
    ),
    "a bucket that is not encrypted": ("E9104", f"  Bucket:\n    Type: AWS::S3::Bucket\n{KEPT}"),
    "a cache without TLS": ("E9104", CACHE % "AtRestEncryptionEnabled: true"),
    "a function that rules may not use": ("E9105", RULES % ("String", '!Equals [!Join ["", [a]], ""]')),
    "a list that is looked up in a list of rules": (
        "E9107",
        RULES % ("CommaDelimitedList", "!Contains [[a, b], !Ref SubnetIds]"),
    ),
    "a parameter as the list of a rule": ("E9107", RULES % ("String", '!Contains [!Ref SubnetIds, ""]')),
    "a parameter within the list of a rule": (
        "E9107",
        RULES % ("String", '!Contains [[a, !Ref SubnetIds], ""]'),
    ),
    "a parameter as the second list of a rule": (
        "E9107",
        RULES % ("String", "!EachMemberIn [[a], !Ref SubnetIds]"),
    ),
    "a list that is compared as template.yaml once did": (
        "E9107",
        RULES % ("CommaDelimitedList", '!Contains [!Ref SubnetIds, ""]'),
    ),
    "a cache that is not encrypted at rest": ("E9104", CACHE % "TransitEncryptionEnabled: true"),
}
OUTPUT = "  O{}: {{Value: a}}\n"
HANDLE = "AWS::CloudFormation::WaitConditionHandle"
TOPIC = "  Topic: {Type: AWS::SNS::Topic, Properties: {KmsMasterKeyId: alias/own}}\n"
MISPLACED = {
    "a function in Globals": """
Transform: AWS::Serverless-2016-10-31
Globals: {Function: !If [IsHere, {Timeout: 10}, {Timeout: 20}]}
Resources:
""",
    "a function in Metadata": "Metadata: {Made: !Ref AWS::Region}\nResources:\n",
    "zones in Conditions": """
Conditions: {IsFirst: !Equals [!Select [0, !GetAZs ""], !Ref AWS::Region]}
Resources:
""",
}
BROKEN |= {name: ("E9106", text + TOPIC) for name, text in MISPLACED.items()}
HOST = "Parameters: {Url: {Type: String, AllowedPattern: '%s'}}\nResources:\n" + TOPIC
POLICY = ROLE % ('"sqs:SendMessage"', '"%s"')
BROKEN |= {
    "an ARN of one partition": ("E9108", POLICY % "arn:aws:sqs:eu-central-1:123456789012:q"),
    "a host of one partition": (
        "E9108",
        POLICY.replace('"%s"', '!Sub "arn:${AWS::Partition}:sqs:*:*:q"').replace(
            "lambda.amazonaws.com", '!Sub "logs.${AWS::Region}.amazonaws.com"'
        ),
    ),
    "a pattern that takes hosts of one partition": ("E9108", HOST % "https://sqs[.]amazonaws[.]com/.*"),
    "an escaped pattern that does": ("E9108", HOST % r"https://sqs\.amazonaws\.com/.*"),
}
TASK = """
  Task:
    Type: AWS::ECS::TaskDefinition
    Properties:
      Cpu: 1 vCPU
      Memory: 16 GB
      RequiresCompatibilities: [FARGATE]
      NetworkMode: awsvpc
      ContainerDefinitions: [{Name: a, Image: b}]
"""
CIRCLE = """
  Topic: {Type: AWS::SNS::Topic, Properties: {KmsMasterKeyId: alias/own, TopicName: !GetAtt Other.TopicName}}
  Other: {Type: AWS::SNS::Topic, Properties: {KmsMasterKeyId: alias/own, TopicName: !GetAtt Topic.TopicName}}
"""
CIRCLE_OF_SAM = """
Transform: AWS::Serverless-2016-10-31
Resources:
  Topic: {Type: AWS::SNS::Topic, Properties: {KmsMasterKeyId: alias/own, TopicName: !GetAtt Other.TopicName}}
  Other: {Type: AWS::SNS::Topic, DependsOn: Third, Properties: {KmsMasterKeyId: alias/own}}
  Third: {Type: AWS::SNS::Topic, Properties: {KmsMasterKeyId: alias/own, TopicName: !Sub "a-${Topic}"}}
"""
DEPENDENT = """
  Topic: {Type: AWS::SNS::Topic, Condition: IsHere, Properties: {KmsMasterKeyId: alias/own}}
  Other: {Type: AWS::SNS::Topic, DependsOn: Topic, Properties: {KmsMasterKeyId: alias/own}}
"""
LOGGED = (
    FUNCTION
    + "      LoggingConfig: {LogGroup: !Ref Group}\n%s"
    + f"  Group:\n    Type: AWS::Logs::LogGroup\n{KEPT}    Properties: {{RetentionInDays: 7}}\n"
)
ALARM = """
  Alarm:
    Type: AWS::CloudWatch::Alarm
    Properties:
      AlarmName: %s
      ComparisonOperator: GreaterThanThreshold
      EvaluationPeriods: 1
      Threshold: 1
      Namespace: a
      MetricName: b
      Period: 60
      Statistic: Sum
"""
# What cfn-lint itself finds: these fail if a newer one does not, or if its rule is switched off.
BROKEN |= {
    "a Fargate size that does not exist": ("E3047", TASK),
    "a circle of references": ("E3004", CIRCLE),
    "a circle of references in a template with SAM's transform": ("E3004", CIRCLE_OF_SAM),
    "a dependency on what is not always created": ("E3005", DEPENDENT),
    "variables of more than 4 KB": (
        "E3697",
        LOGGED % f"      Environment: {{Variables: {{NAME: {'x' * 4096}}}}}\n",
    ),
    "a function that runs for an hour": ("E3717", LOGGED % "      Timeout: 3600\n"),
    "a function's name of 65 characters": ("E3031", LOGGED % f"      FunctionName: {'f' * 65}\n"),
    "a role's name of 65 characters": (
        "E3033",
        ROLE.replace("Properties:\n", f"Properties:\n      RoleName: {'r' * 65}\n", 1)
        % ('"sqs:SendMessage"', f"!Sub '{ARN}'"),
    ),
    "an alarm's name of 256 characters": ("E3033", ALARM % ("a" * 256)),
    # Of a kind that few rules are about.
    "501 resources": ("E3010", "".join(f"  T{number}: {{Type: {HANDLE}}}\n" for number in range(501))),
    "201 outputs": ("E6010", f"Outputs:\n{''.join(map(OUTPUT.format, range(201)))}Resources:\n{TOPIC}"),
    "a megabyte": ("E1002", TOPIC.replace("{Type", f"{{Metadata: {{A: {'x' * 10**6}}}, Type", 1)),
}
ALLOWED = {
    "a parameter that is looked up in a list of rules": RULES
    % ("String", "!Contains [[a, b], !Ref SubnetIds]"),
    "a list of all parameters of a type": RULES
    % ("String", '!Contains [!RefAll "AWS::EC2::VPC::Id", !Ref SubnetIds]'),
    "a pattern that takes hosts of China, too": HOST
    % r"https://(sqs[.]amazonaws[.]com([.]cn)?|\.amazonaws\.com(\.cn)?)",
    "an ARN of the stack's own partition": POLICY.replace('"%s"', '!Sub "arn:${AWS::Partition}:sqs:*:*:q"'),
    "a star with its reason": (ROLE % ('["xray:PutTraceSegments"]', "'*'")).replace(
        "    Properties:\n      Assume",
        "    Metadata: {Keylane: {AllowStar: no resources}}\n    Properties:\n      Assume",
        1,
    ),
    "a function with its log group": LOGGED % "",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What cfn-lint finds in each template: its rules' ids. One run, for a start takes a second."""
    folder = tmp_path_factory.mktemp("templates")
    texts = {name: text for name, (_, text) in BROKEN.items()} | ALLOWED
    for name, text in texts.items():
        head = 'AWSTemplateFormatVersion: "2010-09-09"\n'
        if "IsHere" in text:
            head += "Conditions: {IsHere: !Equals [!Ref AWS::Region, us-east-1]}\n"
        if "Resources:" not in text:
            head += "Resources:\n"
        (folder / f"{name}.yaml").write_text(head + text.removeprefix("\n"), encoding="utf-8")
    command = templates.cfn_lint([str(folder / f"{name}.yaml") for name in texts], "--format", "json")
    done = subprocess.run(command, cwd=ROOT, env=templates.environment(), capture_output=True, check=False)
    assert done.stdout, done.stderr.decode()
    ids = {name: set() for name in texts}
    for each in json.loads(done.stdout):
        ids[each["Filename"].rpartition("/")[2].removesuffix(".yaml")].add(each["Rule"]["Id"])
    return ids


@pytest.mark.parametrize("name", BROKEN)
def test_rule_finds(found, name):
    assert {each for each in found[name] if each.startswith("E")} == {BROKEN[name][0]}


@pytest.mark.parametrize("name", ALLOWED)
def test_rules_allow(found, name):
    assert not {each for each in found[name] if each.startswith("E")}
