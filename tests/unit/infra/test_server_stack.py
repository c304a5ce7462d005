"""infra/server.yaml: the standing server has what the functions have, and its own pages are hidden."""

from __future__ import annotations

import json
import re

from tests.support.cloudformation import ROOT, of_type, template

from keylane.model.routes import EXPLORE, PRODUCE, QUERY
from keylane_server import pages, server
from keylane_server.options import AUTHORIZATIONS, TOKENS

FOUND = template("infra/server.yaml")
RESOURCES = FOUND["Resources"]
PARAMETERS = FOUND["Parameters"]
PAGE = (ROOT / "docs" / "operate" / "fargate.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "infra" / "docker" / "server.Dockerfile").read_text(encoding="utf-8")
[CONTAINER] = RESOURCES["Task"]["Properties"]["ContainerDefinitions"]
VARIABLES = {each["Name"]: each["Value"] for each in CONTAINER["Environment"]}


def attributes(resource, key):
    return {each["Key"]: each["Value"] for each in RESOURCES[resource]["Properties"][key] if "Key" in each}


def test_the_server_has_its_own_variables_and_each_of_the_functions_whose_handlers_it_runs():
    main = template()["Resources"]
    wanted = {"KEYLANE_ACCESS", "KEYLANE_LOGIN", "KEYLANE_MCP_WRITES", "KEYLANE_METRICS_NAMESPACE"}
    for function in (QUERY, PRODUCE, EXPLORE):
        properties = main[f"{function.capitalize()}Function"]["Properties"]
        wanted |= properties["Environment"]["Variables"].keys()
    wanted.remove("KEYLANE_USER_POOL")  # the server verifies tokens itself
    assert {name for name in VARIABLES if name.startswith("KEYLANE_")} == wanted


def test_the_server_prints_its_metrics_for_cloudwatch_in_a_namespace_of_its_stack():
    assert "--emf" in CONTAINER["Command"]
    assert VARIABLES["KEYLANE_METRICS_NAMESPACE"] == {"Fn::Sub": "Keylane/${AWS::StackName}"}
    assert CONTAINER["LogConfiguration"]["LogDriver"] == "awslogs", "CloudWatch Logs reads the lines"


def test_the_page_pushes_the_image_that_it_deploys_into_the_repository_that_it_makes():
    [made] = re.findall(r"aws ecr create-repository --repository-name (\S+)", PAGE)
    images = re.findall(r"(?:IMAGE|Image)=[0-9]{12}\S+?/(\S+):1", PAGE)
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
