"""Options that are off by default: each makes its resources only where its parameter is set."""

from __future__ import annotations

import json

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane_build.templates import all_templates

MAIN = template()
EDGE = template("infra/edge.yaml")
KAFKA = template("infra/kafka.yaml")
RESOURCES = MAIN["Resources"]
API = RESOURCES["Api"]["Properties"]
NESTED = ("network", "kafka", "cache", "pipeline")
NO_VALUE = {"Ref": "AWS::NoValue"}
TIERS = ("TierA", "TierB", "TierC")
OF_THE_EDGE = ("CorsOrigin", "DomainName", "CertificateArn", "HostedZoneId", "WebAclArn", "VpcEndpointIds")
OPTIONS = dict.fromkeys((*OF_THE_EDGE, *TIERS, "KmsKeyArn"), "")
OPTIONS |= dict.fromkeys(("KafkaMaxVolumeGiB", "CacheRotationDays"), 0)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_off_by_default(name):
    assert MAIN["Parameters"][name]["Default"] == OPTIONS[name]


def test_what_is_in_front_of_the_api_exists_only_where_it_is_asked_for():
    assert RESOURCES["Edge"]["Condition"] == "HasEdge"
    conditions = {name: each["Condition"] for name, each in EDGE["Resources"].items()}
    assert conditions == {
        "WebAcl": "HasWebAcl",
        "Domain": "HasDomain",
        "Mapping": "HasDomain",
        "Record": "HasZone",
    }
    assert RESOURCES["Edge"]["Properties"]["Parameters"]["StageName"] == {"Ref": "Api.Stage"}


def test_a_base_path_of_several_levels_is_mapped_without_its_first_slash():
    [mapping] = of_type(EDGE, "AWS::ApiGatewayV2::ApiMapping").values()
    condition, key, otherwise = mapping["Properties"]["ApiMappingKey"]["Fn::If"]
    assert (condition, otherwise) == ("HasBasePath", NO_VALUE)
    glue, split = key["Fn::Join"]
    separator, text = split["Fn::Split"]
    for path, expected in (("/kafka", "kafka"), ("/data/kafka", "data/kafka")):
        assert glue.join(text["Fn::Sub"].replace("${BasePath}", path).split(separator)) == expected


def statements() -> list[dict]:
    """The private API's policy: a Deny, and an Allow where callers have no policy of their own."""
    condition, policy, otherwise = API["DefinitionBody"]["x-amazon-apigateway-policy"]["Fn::If"]
    assert (condition, otherwise) == ("IsPrivate", NO_VALUE)
    return list(policy["Statement"])


def test_a_private_api_refuses_what_did_not_come_through_its_endpoints():
    endpoint = API["EndpointConfiguration"]
    assert endpoint["Type"] == {"Fn::If": ["IsPrivate", "PRIVATE", "REGIONAL"]}
    endpoints = {"Fn::Split": [",", {"Ref": "VpcEndpointIds"}]}
    assert endpoint["VPCEndpointIds"] == {"Fn::If": ["IsPrivate", endpoints, NO_VALUE]}
    denied = statements()[0]
    assert (denied["Effect"], denied["Principal"]) == ("Deny", "*")
    assert denied["Condition"] == {"StringNotEquals": {"aws:SourceVpce": endpoints}}


def test_a_private_api_allows_nobody_whom_a_policy_of_the_callers_own_decides_about():
    """API Gateway takes an Allow of either policy as enough, within one account."""
    condition, then, allowed = statements()[1]["Fn::If"]
    assert (condition, then, allowed["Effect"]) == ("HasCallerPolicy", NO_VALUE, "Allow")
    own = [{"Condition": "IsIam"}, {"Condition": "IsAuthorized"}]
    assert MAIN["Conditions"]["HasCallerPolicy"] == {"Fn::Or": own}


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_is_a_usage_plan_of_its_four_parts(tier):
    plan = RESOURCES[f"PlanOf{tier}"]
    assert plan["Condition"] == f"Has{tier}"
    words = {"Fn::Split": [":", {"Ref": tier}]}  # NAME:RATE:BURST:QUOTA
    parts = [{"Fn::Select": [part, words]} for part in range(4)]
    properties = plan["Properties"]
    assert properties["UsagePlanName"]["Fn::Sub"][1] == {"Tier": parts[0]}
    assert properties["Throttle"] == {"RateLimit": parts[1], "BurstLimit": parts[2]}
    assert properties["Quota"] == {"Period": "DAY", "Limit": parts[3]}


def test_brokers_volumes_grow_by_themselves_only_where_they_may():
    [target] = of_type(KAFKA, "AWS::ApplicationAutoScaling::ScalableTarget").values()
    [policy] = of_type(KAFKA, "AWS::ApplicationAutoScaling::ScalingPolicy").values()
    assert target["Condition"] == policy["Condition"] == "IsScaled"
    assert target["Properties"]["MinCapacity"] == 1
    assert policy["Properties"]["TargetTrackingScalingPolicyConfiguration"]["DisableScaleIn"] is True


@pytest.mark.parametrize(
    ("kind", "action"), [("AWS::SQS::QueuePolicy", "sqs:*"), ("AWS::S3::BucketPolicy", "s3:*")]
)
def test_queues_and_bucket_refuse_requests_without_tls(kind, action):
    [policy] = of_type(MAIN, kind).values()
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", action)
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize(
    ("policy", "pattern"), [("WriteKafkaPolicy", "KafkaWriteTopics"), ("ReadKafkaPolicy", "KafkaReadTopics")]
)
def test_roles_reach_the_named_topics_of_kafka_and_never_internal_ones(policy, pattern):
    found = RESOURCES[policy]["Properties"]["PolicyDocument"]["Statement"]
    allowed = [each for each in found if each["Effect"] == "Allow" and ":topic/" in json.dumps(each)]
    assert [each["Resource"]["Fn::Sub"][0].rpartition("/")[2] for each in allowed] == [f"${{{pattern}}}"]
    [denied] = [each for each in found if each["Effect"] == "Deny"]
    assert denied["Action"] == "kafka-cluster:*"
    assert [each["Fn::Sub"][0].rpartition("/")[2] for each in denied["Resource"]] == ["__*", "_schemas"]


OWN_KEY = {"Fn::If": ["HasKey", {"Ref": "KmsKeyArn"}, NO_VALUE]}
KEY_PROPERTIES = {
    "AWS::Logs::LogGroup": "KmsKeyId",
    "AWS::SQS::Queue": "KmsMasterKeyId",
    "AWS::SecretsManager::Secret": "KmsKeyId",
    "AWS::ElastiCache::ReplicationGroup": "KmsKeyId",
}
EXEMPT = {
    "ScramSecret": "its key is one of the stack's own, which MSK needs",
    "StarterDeadLetters": "events without data, which EventBridge sends as itself",
}


@pytest.mark.parametrize("path", ["template.yaml", *(f"infra/{each}.yaml" for each in NESTED)])
def test_everything_that_stores_data_takes_the_key_of_the_parameter(path):
    found = template(path)
    for kind, name in KEY_PROPERTIES.items():
        for resource, described in of_type(found, kind).items():
            if resource not in EXEMPT:
                assert described["Properties"].get(name) == OWN_KEY, resource


def test_a_queue_has_one_kind_of_encryption():
    """SQS takes either its own keys or KMS."""
    for queue in of_type(MAIN, "AWS::SQS::Queue").values():
        assert queue["Properties"]["SqsManagedSseEnabled"] == {"Fn::If": ["HasKey", False, True]}


def test_whoever_uses_queues_bucket_or_passwords_may_use_their_key():
    attached = {
        role: json.dumps(RESOURCES[role]["Properties"]["ManagedPolicyArns"])
        for role in of_type(MAIN, "AWS::IAM::Role")
        if "ManagedPolicyArns" in RESOURCES[role]["Properties"]
    }
    with_key = {role for role, policies in attached.items() if "DataKeyPolicy" in policies}
    assert with_key == {"ProduceRole", "DrainRole"}
    for policy in ("ReaderSecretPolicy", "CounterSecretPolicy"):
        condition, allowed, _ = RESOURCES[policy]["Properties"]["PolicyDocument"]["Statement"][1]["Fn::If"]
        assert (condition, allowed["Action"]) == ("HasKey", "kms:Decrypt")
    keys = RESOURCES["Pipeline"]["Properties"]["Parameters"]["SecretKeyArns"]["Fn::Join"][1]
    assert {"Fn::If": ["HasKeyOfNewCache", {"Ref": "KmsKeyArn"}, NO_VALUE]} in keys


def test_every_path_answers_a_preflight_without_credentials_where_an_origin_is_set():
    for path, methods in API["DefinitionBody"]["paths"].items():
        condition, preflight, otherwise = methods["options"]["Fn::If"]
        assert (condition, otherwise) == ("HasCors", NO_VALUE), path
        assert preflight["security"] == []
        integration = preflight["x-amazon-apigateway-integration"]
        assert (integration["type"], integration["contentHandling"]) == ("mock", "CONVERT_TO_TEXT")
        given = integration["responses"]["default"]["responseParameters"]
        assert given["method.response.header.Access-Control-Allow-Origin"] == {"Fn::Sub": "'${CorsOrigin}'"}
        declared = {name.removeprefix("method.response.header.") for name in given}
        assert declared == preflight["responses"]["204"]["headers"].keys()


def test_a_page_of_the_origin_may_read_every_answer_those_of_api_gateway_too():
    allowed = {"Fn::If": ["HasCors", {"Fn::Sub": "'${CorsOrigin}'"}, NO_VALUE]}
    own = API["DefinitionBody"]["x-amazon-apigateway-gateway-responses"]
    for each in own.values():
        given = each["responseParameters"]
        assert given["gatewayresponse.header.Access-Control-Allow-Origin"] == allowed
    for name in ("Query", "Produce", "Explore"):
        variables = RESOURCES[f"{name}Function"]["Properties"]["Environment"]["Variables"]
        assert variables["KEYLANE_CORS_ORIGIN"] == {"Ref": "CorsOrigin"}


POLICIES = {
    "AWS::KMS::Key": "KeyPolicy",
    "AWS::SQS::QueuePolicy": "PolicyDocument",
    "AWS::S3::BucketPolicy": "PolicyDocument",
    "AWS::SecretsManager::ResourcePolicy": "ResourcePolicy",
}
OF_THIS_ACCOUNT = ("aws:SourceAccount", "aws:SourceArn", "kms:EncryptionContext")
WITHOUT_A_SOURCE = {"ScramSecretPolicy": "MSK's page shows none, and says of no key that MSK would send it"}


@pytest.mark.parametrize("path", all_templates(ROOT))
def test_a_service_may_use_a_resource_for_this_account_alone(path):
    """Another account's alarm, rule or API could be the deputy. A role is passed within its account only."""
    found = template(path)
    for name, permission in of_type(found, "AWS::Lambda::Permission").items():
        assert {"SourceArn", "SourceAccount"} & permission["Properties"].keys(), name
    for kind, document in POLICIES.items():
        for name, resource in of_type(found, kind).items():
            for statement in resource["Properties"][document]["Statement"]:
                is_service = "Service" in (statement["Principal"] if statement["Principal"] != "*" else {})
                if is_service and name not in WITHOUT_A_SOURCE:
                    assert any(each in json.dumps(statement.get("Condition")) for each in OF_THIS_ACCOUNT), (
                        name
                    )
