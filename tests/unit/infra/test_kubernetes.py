"""The chart for Kubernetes names what the project has: settings, images, ports, pages, files.

`chart/` has what helm makes of it. `make lint-infra` compares that with the chart and Kubernetes' schemas.
tests/integration/cluster runs what it says.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cloudformation import ROOT

from keylane.config import kafka_table
from keylane.config.login import read_login
from keylane.config.settings import SettingsTable
from keylane.config.table import REDIS, SETTINGS
from keylane.model.routes import EXPLORE, PRODUCE, QUERY, ROUTES
from keylane_cli import serve
from keylane_server import pages
from keylane_spark.config.config_file import load
from keylane_spark.config.topics import Config

FOLDER = ROOT / "infra" / "kubernetes"
RENDERED = ROOT / "tests" / "unit" / "infra" / "chart"
PAGE = (ROOT / "docs" / "operate" / "kubernetes.md").read_text(encoding="utf-8")
TABLES = [SETTINGS, REDIS, *(each for each in vars(kafka_table).values() if isinstance(each, SettingsTable))]
READ_BY = {name: set(re.split(r", *", setting.parts)) for table in TABLES for name, setting in table.items()}
OWN = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/own"
OF_CONSOLE = {pages.CONSOLE, pages.DOCS, pages.OPENAPI}
KINDS = {"job": "StatefulSet", "server": "Deployment"}
PARTS = {
    "job": {"job"},
    "server": {QUERY, PRODUCE, EXPLORE, "authorizer", "all functions", "`keylane serve`"},
}


class UniqueKeys(yaml.SafeLoader):
    """YAML in which a key that is there twice is an error: Kubernetes would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key is there twice"
        return super().construct_mapping(node, deep)


def read(case: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What helm makes of the chart with the values of a case, by kind and name."""
    text = (RENDERED / f"{case}.yaml").read_text(encoding="utf-8")
    found = [each for each in yaml.load_all(text, Loader=UniqueKeys) if each]
    objects = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(objects) == len(found)
    return objects


OBJECTS, EVERYTHING, ONE_POD, LOGIN = (read(case) for case in ("default", "all-options", "one-pod", "login"))
VALUES = yaml.load((FOLDER / "values.yaml").read_text(encoding="utf-8"), Loader=UniqueKeys)  # noqa: S506 (safe)
FILES = OBJECTS["ConfigMap", "keylane-job"]["data"]
EXECUTOR = yaml.load(FILES["executor.yaml"], Loader=UniqueKeys)  # noqa: S506 (a SafeLoader)
JOB, SERVER = OBJECTS["StatefulSet", "keylane-job"], OBJECTS["Deployment", "keylane-server"]
PODS = {"job": JOB["spec"]["template"]["spec"], "server": SERVER["spec"]["template"]["spec"]}
CONTAINERS = {name: pod["containers"][0] for name, pod in PODS.items()}
RECIPES = {name: (ROOT / f"infra/docker/{name}.Dockerfile").read_text(encoding="utf-8") for name in PODS}
SHARED = OBJECTS["ConfigMap", "keylane-settings"]["data"]


def config_of(objects: dict[tuple[str, str], dict[str, Any]]) -> Config:
    """The job's config, read as the job does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keylane.toml"
        path.write_text(objects["ConfigMap", "keylane-job"]["data"]["keylane.toml"], encoding="utf-8")
        return load(path)


CONFIG = config_of(OBJECTS)


@pytest.mark.parametrize("name", PODS)
def test_a_container_has_all_settings_that_must_be_set_and_none_that_its_program_does_not_read(name):
    own = [each["name"] for each in CONTAINERS[name]["env"]]
    needed = {"KEYLANE_KAFKA_BOOTSTRAP", "KEYLANE_REDIS_NODES"}
    assert needed | ({"KEYLANE_ACCESS"} if name == "server" else set()) <= {*own, *SHARED}
    assert own
    assert CONTAINERS[name]["envFrom"] == [{"configMapRef": {"name": "keylane-settings"}}]
    for variable in [*own, *SHARED]:
        assert READ_BY[variable] & PARTS[name], variable


def test_secrets_are_references_to_the_one_secret_that_the_page_makes():
    made = set(re.findall(r"--from-(?:literal|file)=([a-z-]+)=", PAGE))
    named: set[str] = set()
    for container in CONTAINERS.values():
        references = {e["name"]: e["valueFrom"]["secretKeyRef"] for e in container["env"] if "valueFrom" in e}
        assert {each["name"] for each in references.values()} == {"keylane"}
        named |= {each["key"] for each in references.values()}
        plain = {each["name"] for each in container["env"]} - references.keys() | SHARED.keys()
        assert not [name for name in plain if re.search("PASSWORD|ACCESS$|SSL_KEY", name)]
    assert named == made


@pytest.mark.parametrize(
    ("objects", "registry", "tag"), [(OBJECTS, "registry.example", "1"), (EVERYTHING, OWN, "7")]
)
def test_driver_executors_and_server_have_the_images_of_one_value(objects, registry, tag):
    images = {name: f"{registry}/keylane-{name}:{tag}" for name in PODS}
    found = {name: objects[kind, f"keylane-{name}"] for name, kind in KINDS.items()}
    for name, each in found.items():
        assert each["spec"]["template"]["spec"]["containers"][0]["image"] == images[name]
        options = f"--tag $REGISTRY/keylane-{name}:1 --file infra/docker/{name}.Dockerfile"
        assert f"docker build --platform linux/amd64 {options}" in PAGE
    assert config_of(objects).spark["spark.kubernetes.container.image"] == images["job"], "that of executors"


def test_executors_start_with_a_module_that_exists():
    python, option, module = EXECUTOR["spec"]["containers"][0]["command"]
    assert (python, option) == ("python", "-m")
    assert importlib.util.find_spec(module)


def test_probes_ask_the_servers_own_pages_at_its_port():
    server = CONTAINERS["server"]
    [port] = server["ports"]
    assert f'"--port", "{port["containerPort"]}"' in RECIPES["server"]
    probes = {name: server[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {each["port"] for each in probes.values()} == {port["name"]}
    assert probes["readiness"]["path"] == pages.READY
    assert probes["liveness"]["path"] == probes["startup"]["path"] == pages.LIVE
    [service] = OBJECTS["Service", "keylane-server"]["spec"]["ports"]
    assert service["targetPort"] == port["name"]


def test_the_servers_arguments_are_options_of_keylane_serve():
    arguments = CONTAINERS["server"]["args"]
    names = {name for option in serve.serve.params for name in option.opts}
    assert {each for each in arguments if each.startswith("-")} <= names
    assert serve.serve.make_context("serve", list(arguments)).params["drain_s"] == 30


def test_a_server_that_ends_has_time_for_what_runs():
    server = CONTAINERS["server"]
    pause = server["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = serve.serve.make_context("serve", list(server["args"])).params["drain_s"]
    assert PODS["server"]["terminationGracePeriodSeconds"] >= pause + drain + 5


def test_a_release_and_a_drained_node_leave_servers_that_answer():
    assert SERVER["spec"]["replicas"] >= 2
    assert SERVER["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = OBJECTS["PodDisruptionBudget", "keylane-server"]["spec"]
    assert budget["maxUnavailable"] < SERVER["spec"]["replicas"]
    zones = [each["topologyKey"] for each in PODS["server"]["topologySpreadConstraints"]]
    assert "topology.kubernetes.io/zone" in zones


def test_selectors_find_their_pods():
    for workload in (JOB, SERVER):
        name = workload["metadata"]["name"]
        labels = workload["spec"]["selector"]["matchLabels"]
        assert labels.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
        assert OBJECTS["Service", name]["spec"]["selector"] == labels
    assert OBJECTS["PodDisruptionBudget", "keylane-server"]["spec"]["selector"] == SERVER["spec"]["selector"]


def test_there_is_one_job_at_a_time():
    assert (JOB["kind"], JOB["spec"]["replicas"]) == ("StatefulSet", 1)


def test_executors_find_the_driver_by_its_name_also_before_it_is_ready():
    service = OBJECTS["Service", JOB["spec"]["serviceName"]]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    pod = f"{JOB['metadata']['name']}-0"
    assert CONFIG.spark["spark.kubernetes.driver.pod.name"] == pod
    assert CONFIG.spark["spark.driver.host"] == f"{pod}.{JOB['spec']['serviceName']}"


def test_ports_of_the_job_are_those_of_its_config():
    ports = {each["name"]: each["containerPort"] for each in CONTAINERS["job"]["ports"]}
    driver = {
        "driver": CONFIG.spark["spark.driver.port"],
        "blocks": CONFIG.spark["spark.driver.blockManager.port"],
    }
    assert ports == driver | {"metrics": CONFIG.job.metrics_port}
    assert CONFIG.job.metrics_host == "0.0.0.0"  # noqa: S104 (Prometheus is in another pod)
    assert {
        each["name"]: each["port"] for each in OBJECTS["Service", "keylane-job"]["spec"]["ports"]
    } == driver


def test_the_config_says_the_namespace_in_which_everything_is():
    assert CONFIG.spark["spark.kubernetes.namespace"] == "keylane"
    assert "--namespace keylane" in PAGE
    assert not [kind for kind, _ in OBJECTS if kind == "Namespace"]


def test_a_job_without_executors_has_no_settings_of_spark_for_them():
    assert config_of(ONE_POD).spark == {}
    assert ("Deployment", "keylane-server") not in ONE_POD
    [container] = ONE_POD["StatefulSet", "keylane-job"]["spec"]["template"]["spec"]["containers"]
    assert not [each for each in container["env"] if "valueFrom" in each]
    assert "livenessProbe" not in container


def test_a_change_of_settings_or_config_replaces_the_pods():
    checksums = [
        {name: objects[kind, f"keylane-{part}"]["spec"]["template"]["metadata"]["annotations"]}
        for objects in (OBJECTS, EVERYTHING)
        for part, kind in KINDS.items()
        for name in [part]
    ]
    assert len({json.dumps(each, sort_keys=True) for each in checksums}) == 4
    assert all("checksum/settings" in str(each) for each in checksums)


def test_the_way_in_leads_to_the_paths_of_the_api_and_not_to_those_without_a_token():
    [rule] = EVERYTHING["Ingress", "keylane"]["spec"]["rules"]
    paths = {each["path"]: each["pathType"] for each in rule["http"]["paths"]}
    routes = {"/" + each.path.split("/")[1] for each in ROUTES}
    assert {path for path, kind in paths.items() if kind == "Prefix"} == routes - {"/health"} | OF_CONSOLE
    assert paths["/health"] == "Exact"
    assert pages.METRICS not in paths
    targets = {json.dumps(each["backend"], sort_keys=True) for each in rule["http"]["paths"]}
    assert targets == {'{"service": {"name": "keylane-server", "port": {"name": "http"}}}'}


def test_the_login_of_people_is_set_for_the_server_and_let_in_without_the_console():
    pod = LOGIN["Deployment", "keylane-server"]["spec"]["template"]["spec"]
    variables = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    found = read_login(variables)
    assert found is not None
    assert found.document["issuer"] == "https://id.example.com/"
    assert READ_BY["KEYLANE_LOGIN"] <= PARTS["server"]
    [rule] = LOGIN["Ingress", "keylane"]["spec"]["rules"]
    paths = {each["path"] for each in rule["http"]["paths"]}
    assert pages.LOGIN in paths
    assert not paths & OF_CONSOLE


def test_policies_admit_clients_and_whoever_collects_metrics():
    ports = {each["name"]: each["containerPort"] for each in CONTAINERS["job"]["ports"]}
    [server] = EVERYTHING["NetworkPolicy", "keylane-server"]["spec"]["ingress"]
    assert server["ports"] == [{"port": CONTAINERS["server"]["ports"][0]["containerPort"]}]
    given = yaml.safe_load((RENDERED / "all-options.values.yaml").read_text(encoding="utf-8"))[
        "networkPolicy"
    ]
    assert server["from"] == [*given["clients"], *given["metrics"]]
    executors, metrics = EVERYTHING["NetworkPolicy", "keylane-job"]["spec"]["ingress"]
    assert executors["ports"] == [{"port": ports["driver"]}, {"port": ports["blocks"]}]
    assert metrics == {"from": given["metrics"], "ports": [{"port": ports["metrics"]}]}
    labels = EXECUTOR["metadata"]["labels"]
    assert executors["from"] == [{"podSelector": {"matchLabels": labels}}]
    for name in ("job", "server", "executor"):
        selector = EVERYTHING["NetworkPolicy", f"keylane-{name}"]["spec"]["podSelector"]["matchLabels"]
        assert selector == {"keylane": f"keylane-{name}"}


def test_the_autoscaler_alone_says_how_many_servers_there_are():
    assert "replicas" not in EVERYTHING["Deployment", "keylane-server"]["spec"]
    scaler = EVERYTHING["HorizontalPodAutoscaler", "keylane-server"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 40)
    assert scaler["scaleTargetRef"]["name"] == "keylane-server"
    assert ("HorizontalPodAutoscaler", "keylane-server") not in OBJECTS


def test_the_job_reads_its_config_where_it_is_mounted():
    [mount] = [each for each in CONTAINERS["job"]["volumeMounts"] if each["name"] == "config"]
    [volume] = [each for each in PODS["job"]["volumes"] if each["name"] == "config"]
    files = OBJECTS["ConfigMap", volume["configMap"]["name"]]["data"]
    folder, template = mount["mountPath"], CONFIG.spark["spark.kubernetes.executor.podTemplateFile"]
    assert CONTAINERS["job"]["args"] == ["--config", f"{folder}/keylane.toml"]
    assert template == f"{folder}/executor.yaml"
    assert {"keylane.toml", "executor.yaml"} == set(files)


def test_the_job_is_ready_as_in_compose():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["job"]
    assert CONTAINERS["job"]["readinessProbe"]["exec"]["command"][-1] == compose["healthcheck"]["test"][-1]


def test_a_job_that_hangs_is_started_again_and_one_that_waits_for_kafka_is_not():
    """The metrics' page is the process's own: it answers without Kafka and Redis."""
    probe = CONTAINERS["job"]["livenessProbe"]["httpGet"]
    assert probe == {"path": "/metrics", "port": "metrics"}
    assert CONFIG.job.metrics == "openmetrics"


def test_what_tasks_are_sent_is_encrypted():
    assert CONFIG.spark["spark.authenticate"] is True
    assert CONFIG.spark["spark.network.crypto.enabled"] is True


@pytest.mark.parametrize("name", [*PODS, "executor"])
def test_a_pod_may_do_as_little_as_it_can(name):
    pod = PODS[name] if name in PODS else EXECUTOR["spec"]
    recipe = RECIPES["server" if name == "server" else "job"]
    user = int(re.search(r"^USER (\d+)", recipe, re.MULTILINE)[1])
    context = pod["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, user)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108 (the container's own)
    assert {"name": "tmp", "emptyDir": {}} in pod["volumes"]
    account = OBJECTS["ServiceAccount", pod["serviceAccountName"]]
    assert (name == "job") == (account.get("automountServiceAccountToken", True))


def test_the_driver_alone_has_rights_in_kubernetes():
    [subject] = OBJECTS["RoleBinding", "keylane-job"]["subjects"]
    assert subject["name"] == PODS["job"]["serviceAccountName"]
    assert OBJECTS["RoleBinding", "keylane-job"]["roleRef"]["name"] == "keylane-job"
    assert not [kind for kind, _ in OBJECTS if kind.startswith("Cluster")]


@pytest.mark.parametrize("name", PODS)
def test_memory_is_bounded(name):
    resources = CONTAINERS[name]["resources"]
    assert {"cpu", "memory"} <= resources["requests"].keys()
    assert "memory" in resources["limits"]


def test_a_value_that_the_chart_does_not_have_is_refused():
    """helm compares values with the schema; in these objects it accepts what values.yaml has, and no more."""
    schema = json.loads((FOLDER / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"].pop("global") == {"type": "object"}, "helm's own"

    def compare(described: dict[str, Any], values: dict[str, Any], where: str) -> None:
        if "properties" in described:
            assert described["additionalProperties"] is False, where
            assert described["properties"].keys() == values.keys(), where
            for name, each in described["properties"].items():
                compare(each, values[name], f"{where}.{name}")

    compare(schema, VALUES, "values")
