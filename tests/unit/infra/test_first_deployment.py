"""What a first deployment into an empty account needs, and what a failed one leaves behind."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.support.cloudformation import ROOT, of_type, template

from keylane_build.stack.combinations import read_combinations
from keylane_build.stack.loading import load_template

MAIN = template()
RESOURCES = MAIN["Resources"]
PIPELINE = template("infra/pipeline.yaml")
TEMPLATES = sorted(each.name for each in (ROOT / "infra").glob("*.yaml"))
NO_VALUE = {"Ref": "AWS::NoValue"}
OF_THE_ACCOUNT = {
    "template.yaml": {"GatewayAccount", "GatewayLogRoleOfAccount"},
    "infra/deployer.yaml": {"Provider"},
}
"""They outlive even a failed first deployment: others in the account may use them by then."""
HOLD_DATA = {
    "template.yaml": {"Network", "Kafka", "LogQueue", "DeadLetters", "LargeRecords"},
    "infra/key.yaml": {"Key"},
}
"""Template -> its resources with accepted records, what they need, and the key that reads them."""
HOLDING = {"AWS::MSK::Cluster", "AWS::MSK::ServerlessCluster", "AWS::ElastiCache::ReplicationGroup"}
NESTED = {
    name: each["Properties"]["TemplateURL"]
    for name, each in of_type(MAIN, "AWS::CloudFormation::Stack").items()
}


def decrypts(statement: object, keys: object) -> bool:
    allowed = {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": keys}
    return statement == {"Fn::If": ["HasSecretKeys", allowed, NO_VALUE]}


def test_functions_and_job_may_decrypt_secrets_with_keys_of_the_account():
    """MSK's SCRAM secrets always have such a key."""
    statements = RESOURCES["SecretsPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    keys = {"Ref": "SecretKeyArns"}
    assert any(decrypts(each, {"Fn::Split": [",", keys]}) for each in statements)
    policies = template("infra/pipeline.yaml")["Resources"]["JobRole"]["Properties"]["Policies"]
    secrets = policies[0]["Fn::If"][1]
    assert secrets["PolicyName"] == "secrets"
    assert any(decrypts(each, keys) for each in secrets["PolicyDocument"]["Statement"])


def test_functions_and_job_may_decrypt_the_login_of_a_new_kafka():
    policy = RESOURCES["KafkaSecretPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    allowed = {each["Action"]: each["Resource"] for each in policy}
    assert allowed["secretsmanager:GetSecretValue"] == {"Fn::GetAtt": ["Kafka", "Outputs.SecretArn"]}
    assert allowed["kms:Decrypt"] == {"Fn::GetAtt": ["Kafka", "Outputs.KeyArn"]}
    _, keys = RESOURCES["Pipeline"]["Properties"]["Parameters"]["SecretKeyArns"]["Fn::Join"]
    assert {"Fn::If": ["IsNewScram", allowed["kms:Decrypt"], NO_VALUE]} in keys
    secret, key = (template("infra/kafka.yaml")["Outputs"][name]["Value"] for name in ("SecretArn", "KeyArn"))
    assert secret == {"Fn::If": ["IsScram", {"Ref": "ScramSecret"}, ""]}
    assert key == {"Fn::If": ["IsScram", {"Fn::GetAtt": ["ScramKey", "Arn"]}, ""]}


def test_the_job_has_the_health_check_of_compose():
    """It is tried there, and asks neither Kafka nor Redis."""
    [container] = template("infra/pipeline.yaml")["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    assert container["HealthCheck"]["Command"] == compose["services"]["job"]["healthcheck"]["test"]
    assert "KEYLANE_CHECKPOINT=/tmp/checkpoint" in (ROOT / "infra/docker/job.Dockerfile").read_text("utf-8")


@pytest.mark.parametrize("page", ["docs/operate/deploy.md", ".github/workflows/smoke.yml"])
def test_the_job_starts_in_a_deployment_of_its_own(page):
    """One that crashes in the first deployment would take Kafka and the network with it."""
    text = (ROOT / page).read_text("utf-8").replace("\\\n", " ")
    deployments = re.findall(r"(?:sam deploy|JOB=).*(?:Job=FARGATE|JobRunning).*", text)
    first, *later = [each for each in deployments if "EMR_SERVERLESS" not in each]
    assert "Job=FARGATE" in first
    assert "JobRunning=false" in first
    assert any("JobRunning=true" in each for each in later)
    assert all("JobRunning=" in each for each in later)


def test_the_commands_of_the_page_list_every_secret_that_they_name():
    pages = {name: each for name, each in read_combinations(ROOT).items() if name.startswith("deploy-page")}
    named = 0
    for given in pages.values():
        listed = re.findall(r":secret:([\w-]+)-\w{6}(?:,|$)", given.get("SecretArns", ""))
        secrets = {
            found[1] for each in given.values() if (found := re.match(r"secretsmanager:([\w-]+)", each))
        }
        assert secrets <= set(listed)
        named += len(secrets)
    assert named >= 2


def test_the_job_creates_the_topics_of_a_new_kafka_only():
    wanted = {"Fn::If": ["IsNewKafka", "true", "false"]}
    assert RESOURCES["Pipeline"]["Properties"]["Parameters"]["CreateTopics"] == wanted


def test_outputs_say_how_to_reach_what_is_new():
    conditions = {name: each.get("Condition") for name, each in MAIN["Outputs"].items()}
    assert conditions.items() >= {
        ("KafkaBootstrap", "IsNewKafka"),
        ("KafkaSecretArn", "IsNewScram"),
        ("RedisNodes", "IsNewCache"),
        ("NetworkSubnetIds", "IsNewNetwork"),
        ("JobSecurityGroup", "IsNewNetwork"),
    }


def test_the_stage_waits_for_the_accounts_role_without_which_it_may_have_no_access_log():
    variables = RESOURCES["Api"]["Properties"]["Variables"]
    assert {"Fn::If": ["HasGatewayLogRole", {"Ref": "GatewayAccount"}, "existing"]} in variables.values()


def test_drain_may_shorten_the_time_for_which_a_failed_message_blocks_its_group():
    policies = json.dumps(RESOURCES["DrainRole"]["Properties"]["Policies"])
    assert "sqs:ChangeMessageVisibility" in policies


def test_a_failed_message_is_delivered_again_alone_and_never_while_the_function_may_still_run():
    """Lambda asks for a visibility of the function's timeout at least; AWS recommends six times that."""
    mapping = RESOURCES["DrainFunctionLog"]["Properties"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    timeout_s = RESOURCES["DrainFunction"]["Properties"]["Timeout"]
    assert RESOURCES["LogQueue"]["Properties"]["VisibilityTimeout"] == 6 * timeout_s


@pytest.mark.parametrize("path", ["template.yaml", *(f"infra/{name}" for name in TEMPLATES)])
def test_what_holds_accepted_data_outlives_its_stack_and_a_failed_first_deployment_leaves_nothing(path):
    resources = template(path)["Resources"]
    stays = {name for name, each in resources.items() if each.get("DeletionPolicy") == "Retain"}
    assert stays == OF_THE_ACCOUNT.get(path, set())
    kept = {name for name, each in resources.items() if each.get("DeletionPolicy") == "RetainExceptOnCreate"}
    assert kept == HOLD_DATA.get(path, set())
    assert all(resources[name]["UpdateReplacePolicy"] == "Retain" for name in kept)


def test_a_trial_keeps_nothing_but_what_belongs_to_the_account(tmp_path):
    """The workflow changes its copy of them. Without the account's role, all its APIs lose their logs."""
    workflow = (ROOT / ".github/workflows/smoke.yml").read_text("utf-8")
    [command] = re.findall(r"sed -i .*", workflow)
    shutil.copy(ROOT / "template.yaml", tmp_path)
    shutil.copytree(ROOT / "infra", tmp_path / "infra")
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True)
    for path in ("template.yaml", *(f"infra/{name}" for name in TEMPLATES)):
        resources = load_template(tmp_path / path)["Resources"]
        kept = {name for name, each in resources.items() if each.get("DeletionPolicy", "Delete") != "Delete"}
        assert kept == OF_THE_ACCOUNT.get(path, set())


@pytest.mark.parametrize("name", NESTED)
def test_a_nested_stack_goes_or_stays_as_a_whole(name):
    """A rollback of the root deletes those that were complete: for them it is no rollback.

    A cluster that stayed then would keep its interfaces, so that the network could not be deleted.
    """
    resources = template(NESTED[name])["Resources"]
    own = {each: found.get("DeletionPolicy", "Delete") for each, found in resources.items()}
    assert {each: policy for each, policy in own.items() if policy.startswith("Retain")} == {}


def test_a_kafka_that_is_replaced_stays():
    clusters = {
        name: each
        for name, each in template("infra/kafka.yaml")["Resources"].items()
        if each["Type"] in HOLDING
    }
    assert {name: each["UpdateReplacePolicy"] for name, each in clusters.items()} == {
        "Cluster": "Retain",
        "Serverless": "Retain",
    }


def test_the_stack_policy_forbids_an_update_to_replace_or_remove_what_holds_data():
    """It is set on the stack, and on its nested stacks Kafka and Cache."""
    allowed, denied = json.loads((ROOT / "infra/stack-policy.json").read_text("utf-8"))["Statement"]
    assert (allowed["Effect"], allowed["Resource"]) == ("Allow", "*")
    assert (denied["Effect"], set(denied["Action"])) == ("Deny", {"Update:Replace", "Update:Delete"})
    clusters = {
        name
        for path in ("infra/kafka.yaml", "infra/cache.yaml")
        for name, each in template(path)["Resources"].items()
        if each["Type"] in HOLDING
    }
    named = {each.removeprefix("LogicalResourceId/") for each in denied["Resource"]}
    assert named == HOLD_DATA["template.yaml"] | {"Cache"} | clusters


def test_a_cache_that_is_deleted_leaves_a_snapshot():
    cluster = template("infra/cache.yaml")["Resources"]["Cluster"]
    assert (cluster["DeletionPolicy"], cluster["UpdateReplacePolicy"]) == ("Snapshot", "Snapshot")


def test_a_401_names_the_scheme_and_every_other_refusal_is_a_problem_document():
    responses = RESOURCES["Api"]["Properties"]["DefinitionBody"]["x-amazon-apigateway-gateway-responses"]
    unauthorized = responses["UNAUTHORIZED"]["responseParameters"]
    assert unauthorized["gatewayresponse.header.WWW-Authenticate"] == "'Bearer'"
    problem = "'application/problem+json'"
    assert responses["DEFAULT_4XX"]["responseParameters"]["gatewayresponse.header.Content-Type"] == problem


def test_the_role_of_the_flow_logs_has_all_actions_that_flow_logs_use():
    [role] = of_type(template("infra/network.yaml"), "AWS::IAM::Role").values()
    statements = role["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    listed = [each["Action"] for each in statements]
    allowed = {action for each in listed for action in ([each] if isinstance(each, str) else each)}
    used = "CreateLogGroup CreateLogStream DescribeLogGroups DescribeLogStreams PutLogEvents"
    assert allowed == {f"logs:{each}" for each in used.split()}


@pytest.mark.parametrize("function", ["Query", "Produce"])
@pytest.mark.parametrize("name", ["Url", "Username", "Password"])
def test_functions_get_the_registrys_address_and_login(function, name):
    variables = RESOURCES[f"{function}Function"]["Properties"]["Environment"]["Variables"]
    assert variables[f"KEYLANE_SCHEMA_REGISTRY_{name.upper()}"] == {"Ref": f"SchemaRegistry{name}"}
    assert MAIN["Parameters"]["SchemaRegistryPassword"]["NoEcho"] is True


@pytest.mark.parametrize("name", ["URL", "USERNAME", "PASSWORD"])
def test_the_job_gets_the_registrys_address_and_login_wherever_it_runs(name):
    """Its login is a secret that its role may read; only the values in it are secret."""
    (container,) = PIPELINE["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    of_task = {each["Name"]: each["Value"] for each in container["Environment"]}
    field = f"secretsmanager:${{SchemaRegistrySecretArn}}#{name.lower()}"
    login = {"Fn::If": ["HasRegistrySecret", {"Fn::Sub": field}, ""]}
    wanted = {"Ref": "SchemaRegistryUrl"} if name == "URL" else login
    variable = f"KEYLANE_SCHEMA_REGISTRY_{name}"
    assert of_task[variable] == wanted
    starter = PIPELINE["Resources"]["Starter"]["Properties"]
    assert starter["DefinitionSubstitutions"][f"Registry{name.title()}"] == wanted
    assert f"driverEnv.{variable}=${{Registry{name.title()}}}" in str(starter["Definition"])
    secrets = str(PIPELINE["Resources"]["JobRole"]["Properties"]["Policies"])
    assert "{'Fn::If': ['HasRegistrySecret', {'Ref': 'SchemaRegistrySecretArn'}" in secrets


def test_emr_serverless_is_marked_as_experimental():
    release = template("infra/pipeline.yaml")["Parameters"]["ReleaseLabel"]
    assert release["Description"].startswith("Experimental")
    assert "experimental" in (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8")


def test_the_first_cluster_of_an_account_needs_a_role_that_page_and_workflow_make():
    command = "aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com"
    for path in ("docs/operate/deploy.md", ".github/workflows/smoke.yml"):
        assert command in Path(ROOT / path).read_text(encoding="utf-8")
