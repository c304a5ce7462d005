"""What Ref and GetAtt of a resource look like once it exists: ids, names and ARNs in the form of its type.

The forms are those of the types' pages in CloudFormation's reference. Other
types get the generated name for Ref and for every attribute.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

ACCOUNT, REGION, PARTITION = "123456789012", "eu-central-1", "aws"
SUFFIX = "1A2B3C4D5E6F7"
"""CloudFormation adds so many random characters to the names that it generates."""
PSEUDO_PARAMETERS = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "AWS::Partition": PARTITION,
    "AWS::URLSuffix": "amazonaws.com",
}
_NAMES = {
    "AWS::ElastiCache::ReplicationGroup": "ReplicationGroupId",
    "AWS::ElastiCache::User": "UserId",
    "AWS::ElastiCache::UserGroup": "UserGroupId",
    "AWS::EMRServerless::Application": "Name",
    "AWS::IAM::Role": "RoleName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::MSK::Cluster": "ClusterName",
    "AWS::MSK::ServerlessCluster": "ClusterName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::SecretsManager::Secret": "Name",
}
"""The property that names a resource, if the template sets it."""
_HERE, _UUID = f"{REGION}:{ACCOUNT}", "1234abcd-12ab-34cd-56ef-1234567890ab"
_BALANCING, _ID = f"arn:aws:elasticloadbalancing:{_HERE}", "1a2b3c4d5e6f7a8b"
_ARNS = {
    "AWS::ECS::Cluster": f"arn:aws:ecs:{_HERE}:cluster/{{name}}",
    "AWS::ECS::TaskDefinition": f"arn:aws:ecs:{_HERE}:task-definition/{{name}}:1",
    "AWS::EMRServerless::Application": f"arn:aws:emr-serverless:{_HERE}:/applications/00fabcdefgh12345",
    "AWS::ECS::Service": f"arn:aws:ecs:{_HERE}:service/cluster/{{name}}",
    "AWS::ElasticLoadBalancingV2::Listener": f"{_BALANCING}:listener/app/{{name}}/{_ID}/{_ID}",
    "AWS::ElasticLoadBalancingV2::LoadBalancer": f"{_BALANCING}:loadbalancer/app/{{name}}/{_ID}",
    "AWS::ElasticLoadBalancingV2::TargetGroup": f"{_BALANCING}:targetgroup/{{name}}/{_ID}",
    "AWS::ElastiCache::User": f"arn:aws:elasticache:{_HERE}:user:{{name}}",
    "AWS::IAM::ManagedPolicy": "arn:aws:iam::123456789012:policy/{name}",
    "AWS::IAM::Role": "arn:aws:iam::123456789012:role/{name}",
    "AWS::KMS::Key": f"arn:aws:kms:{_HERE}:key/{_UUID}",
    "AWS::Lambda::Alias": f"arn:aws:lambda:{_HERE}:function:{{name}}:live",
    "AWS::Lambda::Function": f"arn:aws:lambda:{_HERE}:function:{{name}}",
    "AWS::Lambda::LayerVersion": f"arn:aws:lambda:{_HERE}:layer:{{name}}:1",
    "AWS::Lambda::Version": f"arn:aws:lambda:{_HERE}:function:{{name}}:1",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{_HERE}:log-group:{{name}}:*",
    "AWS::MSK::Cluster": f"arn:aws:kafka:{_HERE}:cluster/{{name}}/{_UUID}-1",
    "AWS::MSK::ServerlessCluster": f"arn:aws:kafka:{_HERE}:cluster/{{name}}/{_UUID}-s1",
    "AWS::MSK::Configuration": f"arn:aws:kafka:{_HERE}:configuration/{{name}}/{_UUID}-1",
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::SNS::Topic": f"arn:aws:sns:{_HERE}:{{name}}",
    "AWS::SQS::Queue": f"arn:aws:sqs:{_HERE}:{{name}}",
    "AWS::SecretsManager::Secret": f"arn:aws:secretsmanager:{_HERE}:secret:{{name}}-AbCdEf",
    "AWS::StepFunctions::StateMachine": f"arn:aws:states:{_HERE}:stateMachine:{{name}}",
}
_ARN_IS_REF = {
    "AWS::ECS::Service",
    "AWS::ECS::TaskDefinition",
    "AWS::ElasticLoadBalancingV2::Listener",
    "AWS::ElasticLoadBalancingV2::LoadBalancer",
    "AWS::ElasticLoadBalancingV2::TargetGroup",
    "AWS::IAM::ManagedPolicy",
    "AWS::Lambda::Alias",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Version",
    "AWS::MSK::Cluster",
    "AWS::MSK::Configuration",
    "AWS::MSK::ServerlessCluster",
    "AWS::SNS::Topic",
    "AWS::SecretsManager::Secret",
    "AWS::StepFunctions::StateMachine",
}
_IDS = {
    "AWS::EC2::RouteTable": "rtb-",
    "AWS::EC2::SecurityGroup": "sg-",
    "AWS::EC2::Subnet": "subnet-",
    "AWS::EC2::VPC": "vpc-",
}
"""Ids that are a prefix and 17 hexadecimal digits."""
_OTHER_IDS = {
    "AWS::ApiGateway::RestApi": "a1b2c3d4e5",
    "AWS::EMRServerless::Application": "00fabcdefgh12345",
    "AWS::KMS::Key": _UUID,
    "AWS::Serverless::Api": "a1b2c3d4e5",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """A resource that exists: its type, its name, its stack and logical id, and its properties."""

    kind: str
    name: str
    path: str
    properties: dict[str, Any]

    def reference(self) -> str:
        """Return the value of Ref."""
        if self.kind in _ARN_IS_REF:
            return self.arn()
        if self.kind == "AWS::SQS::Queue":
            return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{self.name}"
        if self.kind == "AWS::ApiGateway::Stage":
            return str(self.properties["StageName"])
        if self.kind in _IDS:
            return _IDS[self.kind] + hashlib.sha256(self.path.encode()).hexdigest()[:17]
        return _OTHER_IDS.get(self.kind, self.name)

    def attribute(self, name: str) -> str:
        """Return the value of GetAtt."""
        if name.endswith("Arn"):
            return self.arn()
        if name in {"GroupId", "VpcId", "RestApiId", "KeyId", "ApplicationId"}:
            return self.reference()
        if name in {"LoadBalancerFullName", "TargetGroupFullName"}:
            return self.arn().rpartition(":")[2].removeprefix("loadbalancer/")
        if name in {"RegionalHostedZoneId", "CanonicalHostedZoneID"}:
            return "Z0123456789ABCDEFGHIJ"
        if name in {"QueueName", "TopicName", "FunctionName", "Name"}:
            return self.name
        return "1" if name.endswith(("Version", "Revision", "Port")) else f"{self.name}.{name}"

    def arn(self) -> str:
        """Return the resource's ARN, or its name if the type is not known here."""
        return _ARNS.get(self.kind, "{name}").format(name=self.name)


def identify(stack: str, logical_id: str, kind: str, properties: dict[str, Any]) -> Identity:
    """Return a resource's identity, by the name in its properties, else by the one that is generated."""
    named = properties.get(_NAMES.get(kind, ""))
    name = named if isinstance(named, str) else f"{stack[:24]}-{logical_id}-{SUFFIX}"
    if kind == "AWS::S3::Bucket":
        name = name.lower()
    if kind == "AWS::SQS::Queue" and properties.get("FifoQueue") and not named:
        name += ".fifo"
    return Identity(kind, name, f"{stack}/{logical_id}", properties)
