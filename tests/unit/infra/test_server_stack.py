"""infra/server.yaml: the standing server has what the functions have, and its own pages are hidden."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane.model.routes import EXPLORE, PRODUCE, QUERY
from keylane_server import pages, server
from keylane_server.options import AUTHORIZATIONS, TOKENS

FOUND = template("infra/server.yaml")
RESOURCES = FOUND["Resources"]
PARAMETERS = FOUND["Parameters"]
ALARMS = of_type(FOUND, "AWS::CloudWatch::Alarm")
PAGE = (ROOT / "docs" / "operate" / "fargate.md").read_text(encoding="utf-8")
TROUBLES = (ROOT / "docs" / "operate" / "troubleshooting.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "infra" / "docker" / "server.Dockerfile").read_text(encoding="utf-8")
[CONTAINER] = RESOURCES["Task"]["Properties"]["ContainerDefinitions"]
VARIABLES = {each["Name"]: each["Value"] for each in CONTAINER["Environment"]}
ROWS = dict(re.findall(r"^\| `([A-Z]\w+)` \| (.+?) \| .+ \|$", PAGE, re.MULTILINE))
PLACEHOLDERS = {"KafkaClusterArn"}


def attributes(resource, key):
    return {each["Key"]: each["Value"] for each in RESOURCES[resource]["Properties"][key] if "Key" in each}


def test_the_server_has_every_variable_of_the_functions_whose_handlers_it_runs():
    main = template()["Resources"]
    wanted = {"KEYLANE_ACCESS", "KEYLANE_METRICS_NAMESPACE"}
    for function in (QUERY, PRODUCE, EXPLORE):
        properties = main[f"{function.capitalize()}Function"]["Properties"]
        wanted |= properties["Environment"]["Variables"].keys()
    assert {name for name in VARIABLES if name.startswith("KEYLANE_")} == wanted


def test_the_server_prints_its_metrics_for_cloudwatch_in_a_namespace_of_its_stack():
    [container] = RESOURCES["Task"]["Properties"]["ContainerDefinitions"]
    assert "--emf" in container["Command"]
    assert VARIABLES["KEYLANE_METRICS_NAMESPACE"] == {"Fn::Sub": "Keylane/${AWS::StackName}"}
    assert container["LogConfiguration"]["LogDriver"] == "awslogs", "CloudWatch Logs reads the lines"


def test_the_page_pushes_the_image_that_it_deploys_into_the_repository_that_it_makes():
    page = (ROOT / "docs" / "operate" / "fargate.md").read_text("utf-8")
    [made] = re.findall(r"aws ecr create-repository --repository-name (\S+)", page)
    images = re.findall(r"(?:IMAGE|Image)=[0-9]{12}\S+?/(\S+):1", page)
    assert len(images) > 2
    assert set(images) == {made}


def test_the_task_has_references_to_secrets_and_no_secret():
    secret = {name for name in VARIABLES if name.endswith(("PASSWORD", "USERNAME", "ACCESS"))}
    for name in secret - {"KEYLANE_REDIS_USERNAME"}:
        _, reference, otherwise = VARIABLES[name]["Fn::If"]
        assert reference["Fn::Sub"].startswith("secretsmanager:${"), name
        assert otherwise == ""
    assert not [name for name, each in PARAMETERS.items() if each.get("NoEcho")]


def test_the_load_balancer_hides_the_pages_that_need_no_token_but_not_that_of_the_api():
    properties = RESOURCES["OwnPages"]["Properties"]
    [condition] = properties["Conditions"]
    patterns = [each.replace("*", ".*") for each in condition["PathPatternConfig"]["Values"]]
    hidden = [
        each
        for each in (pages.LIVE, pages.READY, pages.METRICS, "/health", "/topics")
        if any(re.fullmatch(pattern, each) for pattern in patterns)
    ]
    assert hidden == [pages.LIVE, pages.READY, pages.METRICS]
    [action] = properties["Actions"]
    assert action["FixedResponseConfig"]["StatusCode"] == "404"
    assert json.loads(action["FixedResponseConfig"]["MessageBody"])["status"] == 404


def test_the_load_balancer_asks_whether_the_process_is_ready_not_kafka():
    assert RESOURCES["TargetGroup"]["Properties"]["HealthCheckPath"] == pages.READY


def test_the_server_keeps_an_idle_connection_longer_than_the_load_balancer():
    """A request that meets a connection which is being closed is answered with 502."""
    idle_s = int(attributes("LoadBalancer", "LoadBalancerAttributes")["idle_timeout.timeout_seconds"])
    assert PARAMETERS["WaitMaxMs"]["MaxValue"] < idle_s * 1000 < server.HEADER_TIMEOUT_MS


def test_a_task_may_drain_for_less_time_than_fargate_gives_it():
    assert PARAMETERS["DrainSeconds"]["MaxValue"] < CONTAINER["StopTimeout"] <= 120
    assert PARAMETERS["DrainSeconds"]["Default"] * 1000 > PARAMETERS["WaitMaxMs"]["Default"]
    assert attributes("TargetGroup", "TargetGroupAttributes")["deregistration_delay.timeout_seconds"] == {
        "Ref": "DrainSeconds"
    }


def test_tokens_are_the_default_of_template_and_image():
    assert tuple(sorted(PARAMETERS["Authorization"]["AllowedValues"])) == tuple(sorted(AUTHORIZATIONS))
    assert PARAMETERS["Authorization"]["Default"] == TOKENS
    entry = json.loads(re.search(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)[1])
    assert entry[entry.index("--authorization") + 1] == TOKENS


def test_task_and_target_group_use_the_port_of_the_image():
    [port] = map(int, re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE))
    assert CONTAINER["PortMappings"][0]["ContainerPort"] == port
    assert RESOURCES["TargetGroup"]["Properties"]["Port"] == port
    assert f'"--port", "{port}"' in DOCKERFILE
    assert f"localhost:{port}{pages.LIVE}" in DOCKERFILE


def test_an_update_of_the_stack_does_not_undo_the_scaling():
    assert "DesiredCount" not in RESOURCES["Service"]["Properties"]


def test_the_page_has_the_parameters_of_the_template_with_their_defaults():
    assert ROWS.keys() == PARAMETERS.keys()
    for name, described in PARAMETERS.items():
        default = described.get("Default", "required")
        none = default == "" or name in PLACEHOLDERS
        assert ROWS[name] == ("none" if none else default if default == "required" else f"`{default}`"), name
        assert len(described["Description"]) > 15, name


def test_the_page_says_which_outputs_of_a_stack_of_template_yaml_are_which_parameters():
    section = PAGE.partition("\n## Beside a stack of template.yaml\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", section, re.MULTILINE)[1:]
    assert len(rows) > 5
    outputs = template()["Outputs"].keys()
    for given, found in rows:
        assert set(re.findall(r"`(\w+)`", given)) <= PARAMETERS.keys(), given
        named = set(re.findall(r"`([A-Z][a-z]\w+)`", found))
        assert named <= outputs | template()["Parameters"].keys(), found
    users = of_type(template("infra/cache.yaml"), "AWS::ElastiCache::User")
    assert users["Server"]["Properties"]["UserName"] == "server"
    assert ("`RedisUsername`", "none: `server`") in rows


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_is_used(name):
    text = (ROOT / "infra" / "server.yaml").read_text(encoding="utf-8")
    assert re.search(rf"!Ref {name}\b|\$\{{{name}\}}", text)


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_says_what_to_do_where_its_section_is_and_notifies_the_given_topic(name):
    properties = ALARMS[name]["Properties"]
    assert properties["AlarmDescription"].endswith(f": docs/operate/troubleshooting.md#{name.lower()}")
    assert "**Do:**" in TROUBLES.partition(f"\n### {name}\n")[2].partition("\n###")[0]
    assert f"`{name}`" in PAGE
    topic = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    assert properties["AlarmActions"] == properties["OKActions"] == topic
