"""moto makes what the combinations of parameters would make: its IAM and SQS check as AWS's do.

LocalStack deploys the whole template, but takes any policy.
"""

from __future__ import annotations

import contextlib
import json

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from tests.support.cloudformation import ROOT

from keylane_build.stack import checks, matrix
from keylane_build.stack.loading import of_type
from keylane_build.stack.resolving import every_stack

pytestmark = pytest.mark.integration
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "eu-central-1"}
_QUEUE_ATTRIBUTES = ("FifoQueue", "MessageRetentionPeriod", "VisibilityTimeout", "DeduplicationScope")


@pytest.fixture(scope="module")
def stacks():
    """All stacks of all combinations."""
    deployed = matrix.deploy(ROOT, matrix.untransformed(ROOT, pairs=False))
    return [each for _, stack in deployed for each in every_stack(stack)]


@contextlib.contextmanager
def client(service):
    with mock_aws():
        made = boto3.client(service, **KEYS)
        yield made
        made.close()


def distinct(documents):
    """The documents without repetitions, by their text."""
    return sorted({json.dumps({"Version": "2012-10-17", **each}) for each in documents})


def test_iam_accepts_every_policy(stacks):
    documents = distinct(found for each in stacks for _, found in checks.policies(each.resources))
    assert len(documents) > 20
    with client("iam") as iam:
        for number, document in enumerate(documents):
            iam.create_policy(PolicyName=f"policy-{number}", PolicyDocument=document)


def test_iam_accepts_every_role_with_who_may_assume_it(stacks):
    roles = [found for each in stacks for _, found in of_type(each.resources, "AWS::IAM::Role")]
    documents = distinct(each["AssumeRolePolicyDocument"] for each in roles)
    assert len(documents) > 5
    with client("iam") as iam:
        for number, document in enumerate(documents):
            iam.create_role(RoleName=f"role-{number}", AssumeRolePolicyDocument=document)


def test_iam_refuses_a_policy_whose_resource_is_empty():
    document = {"Statement": [{"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": ""}]}
    with client("iam") as iam, pytest.raises(ClientError, match="MalformedPolicyDocument"):
        iam.create_policy(PolicyName="empty", PolicyDocument=distinct([document])[0])


def test_sqs_accepts_every_queue_with_its_dead_letters(stacks):
    found = {name: each for stack in stacks for name, each in of_type(stack.resources, "AWS::SQS::Queue")}
    assert {"LogQueue", "DeadLetters"} <= found.keys()
    with client("sqs") as sqs:
        for name, properties in sorted(found.items(), key=lambda each: "RedrivePolicy" in each[1]):
            attributes = {key: str(properties[key]) for key in _QUEUE_ATTRIBUTES if key in properties}
            attributes = {key: value.replace("True", "true") for key, value in attributes.items()}
            suffix = ".fifo" if properties.get("FifoQueue") else ""
            if "RedrivePolicy" in properties:
                policy = properties["RedrivePolicy"]
                dead = next(each for each in found if f"-{each}-" in policy["deadLetterTargetArn"])
                arn = f"arn:aws:sqs:eu-central-1:123456789012:{dead}{suffix}"
                attributes["RedrivePolicy"] = json.dumps(policy | {"deadLetterTargetArn": arn})
            assert sqs.create_queue(QueueName=f"{name}{suffix}", Attributes=attributes)["QueueUrl"]
