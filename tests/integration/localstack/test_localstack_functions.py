"""Functions in LocalStack, run by the process executor: made, called, changed and deleted as on AWS."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from tests.servers.own import eventually

RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"
HANDLER = """
import os, sys, time
import shared
print("loaded")

def handle(event, context):
    print("asked for", event.get("do"))
    if event.get("do") == "sleep":
        time.sleep(30)
    if event.get("do") == "leave":
        os._exit(7)
    if event.get("do") == "hold":
        time.sleep(0.5)
    if event.get("do") == "own packages":
        import redis
    return {
        "shared": shared.NAME,
        "mine": os.environ["MINE"],
        "pid": os.getpid(),
        "id": context.aws_request_id,
        "region": os.environ["AWS_REGION"],
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
    }
"""


def zipped(**files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/") + ".py", text)
    return data.getvalue()


@pytest.fixture(scope="module")
def client(localstack):
    with_lambda = localstack.client("lambda")
    yield with_lambda
    with_lambda.close()


@pytest.fixture
def function(client, request):
    """Give a maker of functions, with a layer each; they are deleted with the test."""
    made = []

    def make(source=HANDLER, *, timeout=20, runtime=RUNTIME, **variables):
        name = request.node.name.replace("[", "-").rstrip("]")[:60]
        layer = client.publish_layer_version(
            LayerName=name, Content={"ZipFile": zipped(python__shared="NAME = 'of the layer'")}
        )["LayerVersionArn"]
        client.create_function(
            FunctionName=name,
            Runtime=runtime,
            Role="arn:aws:iam::000000000000:role/any",
            Handler="main.handle",
            Code={"ZipFile": zipped(main=source)},
            Layers=[layer],
            Timeout=timeout,
            Environment={"Variables": {"MINE": "set", **variables}},
        )
        made.append(name)
        return name

    yield make
    for name in made:
        # LocalStack does not find one that never became active.
        with contextlib.suppress(client.exceptions.ClientError):
            client.delete_function(FunctionName=name)


def state_of(client, name):
    return client.get_function(FunctionName=name)["Configuration"]


def ready(client, name):
    eventually(lambda: state_of(client, name)["State"] == "Active", 60)
    eventually(lambda: state_of(client, name).get("LastUpdateStatus") == "Successful", 60)


def called(client, name, event=None, **options):
    answer = client.invoke(FunctionName=name, Payload=json.dumps(event or {}), LogType="Tail", **options)
    with answer["Payload"] as body:
        payload = json.loads(body.read())
    return payload, answer.get("FunctionError"), base64.b64decode(answer["LogResult"]).decode()


def test_a_function_sees_its_layer_its_variables_and_the_aws_endpoint(client, function, localstack):
    name = function()
    ready(client, name)
    payload, error, log = called(client, name)
    assert error is None
    assert payload["shared"] == "of the layer"
    assert (payload["mine"], payload["region"]) == ("set", "us-east-1")
    assert payload["endpoint"] == localstack.url
    assert f"START RequestId: {payload['id']}" in log
    assert "loaded\nasked for None\n" in log
    again, _, log = called(client, name)
    assert again["pid"] == payload["pid"]
    assert "loaded" not in log


def test_a_function_has_only_the_packages_of_its_layer_and_of_lambda(client, function):
    name = function()
    ready(client, name)
    payload, error, _ = called(client, name, {"do": "own packages"})
    assert error == "Unhandled"
    assert payload["errorType"] == "ModuleNotFoundError"


def test_a_function_s_lines_reach_its_log_group(client, function, localstack):
    name = function()
    ready(client, name)
    called(client, name, {"do": "talk"})
    logs = localstack.client("logs")

    def lines():
        group = f"/aws/lambda/{name}"
        if not logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
            return []
        return [event["message"] for event in logs.filter_log_events(logGroupName=group)["events"]]

    eventually(lambda: any("asked for talk" in line for line in lines()))
    assert any(line.startswith("REPORT RequestId:") for line in lines())
    logs.close()


def test_a_missing_runtime_is_reported_in_the_functions_state(client, function):
    name = function(runtime="nodejs22.x")
    eventually(lambda: state_of(client, name)["State"] == "Failed", 60)
    assert "PROCESS_EXECUTOR_PYTHON" in state_of(client, name)["StateReason"]


def test_concurrent_calls_get_separate_environments(client, function):
    name = function()
    ready(client, name)
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: called(client, name, {"do": "hold"}), range(3)))
    assert len({payload["pid"] for payload, _, _ in answers}) > 1


def test_changed_code_serves_the_next_call_and_the_old_process_ends(client, function):
    name = function()
    ready(client, name)
    old = psutil.Process(called(client, name)[0]["pid"])
    client.update_function_code(FunctionName=name, ZipFile=zipped(main="def handle(e, c): return 'new'"))
    ready(client, name)
    assert called(client, name)[0] == "new"
    eventually(lambda: not old.is_running() or old.status() == psutil.STATUS_ZOMBIE)
