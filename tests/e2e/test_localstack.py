"""The template deployed to LocalStack: API Gateway and Lambda with real Kafka and Redis."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from urllib.parse import urlsplit

import pytest
import redis
from botocore.exceptions import ClientError
from tests.e2e.client import ApiResponse, path_of
from tests.e2e.examples import EXAMPLES, operations
from tests.servers.own import eventually, records_of

from keylane_local.deploy import deployment
from keylane_local.deploy.cloudformation import CloudStack, DeployFailed
from keylane_local.deploy.deployment import Sources
from keylane_local.deploy.packaging import build_layer_archive
from keylane_local.tools import project_root

TEMPLATE = project_root() / "template.yaml"
POISON = '{"neither": "ours"}'


class Api:
    """A deployed API: the URL of its stage. LocalStack closes connections that are idle for long."""

    def __init__(self, url, **headers) -> None:
        parts = urlsplit(url)
        self._prefix = parts.path
        self._headers = headers
        self._address = parts.hostname, parts.port

    def request(self, method, path, body=None, **headers) -> ApiResponse:
        names = {name.replace("_", "-"): value for name, value in (self._headers | headers).items()}
        with contextlib.closing(http.client.HTTPConnection(*self._address, timeout=60)) as connection:
            connection.request(method, self._prefix + path, body=body, headers=names)
            answer = connection.getresponse()
            return ApiResponse(answer.status, answer.headers, answer.read())


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The folder of the built layer."""
    folder = tmp_path_factory.mktemp("build")
    build_layer_archive(project_root(), folder)
    return folder


@pytest.fixture(scope="module")
def deploy(localstack, applied_stack, build):
    """Return a function that deploys the template for the session's servers."""
    names = set()

    def make(name, template=TEMPLATE, **parameters):
        names.add(name)
        ours = deployment.parameters_for(applied_stack.kafka_bootstrap, applied_stack.redis_nodes)
        return deployment.deploy(localstack, ours | parameters, Sources(build, template), name=name)

    yield make
    client = localstack.client("cloudformation")
    for name in names:
        client.delete_stack(StackName=name)
    client.close()


@pytest.fixture(scope="module")
def deployed(deploy):
    return deploy("e2e")


@pytest.fixture(scope="module")
def api(deployed):
    """The deployed API, with the records that the examples read."""
    api = Api(deployed.url)
    for topic, key, value in [
        ("flights", b"N14228", b'{"dest": "IAH"}'),
        ("flights", b"N24211", b'{"dest": "MIA"}'),
        ("joined", b"N14228", b'{"amount": 1}'),
        ("bookings", b"ann|2026-11-09", b'{"to": "Bern"}'),
    ]:
        answer = api.request("PUT", path_of(topic, key), value)
        assert answer.status == 201, answer.body
        wanted = {"Keylane_Min_Position": answer.json["position"], "Prefer": "wait=20"}
        assert api.request("GET", path_of(topic, key), **wanted).status == 200
    eventually(lambda: api.request("GET", "/views/puts/keys/N14228").status == 200, 60)
    return api


@pytest.fixture
def sqs(localstack):
    client = localstack.client("sqs")
    yield client
    client.close()


def test_there_is_an_example_of_every_operation():
    assert set(EXAMPLES) == {name for name, _, _ in operations()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_operation_is_answered_over_the_deployed_api(api, name):
    example = EXAMPLES[name]
    answer = example.send(api)
    assert answer.status == example.status, answer.body


def test_bytes_pass_the_deployed_api_unchanged(api, key):
    value = bytes(range(256))
    kind = {"Content_Type": "application/octet-stream"}
    position = api.request("PUT", path_of("flights", key), value, **kind).json["position"]
    wanted = {"Keylane_Min_Position": position, "Prefer": "wait=20", "Accept": "application/octet-stream"}
    answer = api.request("GET", path_of("flights", key), **wanted)
    assert (answer.status, answer.body) == (200, value)
    assert answer.headers["Keylane-Position"] == position


def test_a_body_that_curl_declares_as_a_form_passes_the_deployed_api_unchanged(api, key):
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    position = api.request("PUT", path_of("flights", key), b'{"dest": "R&D=a+b"}', **form).json["position"]
    wanted = {"Keylane_Min_Position": position, "Prefer": "wait=20"}
    answer = api.request("GET", path_of("flights", key), **wanted)
    assert (answer.status, answer.json) == (200, {"dest": "R&D=a+b"})
    pushed = {"records": [{"topic": "flights", "key": key.decode(), "data": "a=b&c"}], "wait_for_send": True}
    answer = api.request("POST", "/push", json.dumps(pushed).encode(), **form)
    assert (answer.status, answer.json["status"]) == (200, "ok")


def test_a_key_s_percent_encoding_reaches_the_function(api):
    odd = "ä/b c|1".encode()
    position = api.request("PUT", path_of("flights", odd), b'{"dest": "ZRH"}').json["position"]
    wanted = {"Keylane_Min_Position": position, "Prefer": "wait=20"}
    answer = api.request("GET", path_of("flights", odd), **wanted)
    assert (answer.status, answer.json) == (200, {"dest": "ZRH"})


def test_an_error_is_a_problem_document_over_the_deployed_api(api):
    answer = api.request("GET", path_of("flights", b"absent-in-localstack"))
    assert answer.status == 404
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["type"] == "urn:keylane:problem:key-absent"


def test_an_asynchronous_write_reaches_kafka_through_the_queue(api, key):
    answer = api.request("PUT", path_of("flights", key), b'{"dest": "OSL"}', Prefer="respond-async")
    assert answer.status == 202, answer.body
    assert answer.headers["Preference-Applied"] == "respond-async"
    eventually(lambda: api.request("GET", path_of("flights", key)).status == 200, 60)
    assert api.request("GET", path_of("flights", key)).json == {"dest": "OSL"}


def test_a_poisoned_message_becomes_a_dead_letter_and_blocks_nothing(api, deployed, stack, sqs, key):
    queue, dead = deployed.outputs["LogQueueUrl"], deployed.outputs["DeadLettersUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody=POISON, MessageGroupId="bad", MessageDeduplicationId="1")
    answer = api.request("PUT", path_of("flights", key), b"1", Prefer="respond-async")
    assert answer.status == 202, answer.body

    def dead_letters():
        found = sqs.receive_message(QueueUrl=dead, VisibilityTimeout=0).get("Messages", [])
        return [message["Body"] for message in found]

    eventually(lambda: POISON in dead_letters(), 60)
    eventually(lambda: api.request("GET", path_of("flights", key)).status == 200, 60)

    def left():
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return sum(map(int, found.values()))

    eventually(lambda: left() == 0, 60)


def test_a_function_s_log_is_in_its_log_group(api, localstack):
    api.request("GET", path_of("flights", b"N14228"))
    logs = localstack.client("logs")

    def lines():
        found = logs.filter_log_events(logGroupName="/aws/lambda/e2e-query", filterPattern="REPORT")
        return [event["message"] for event in found["events"]]

    eventually(lambda: any("Max Memory Used" in line for line in lines()))
    logs.close()


@pytest.mark.long
def test_authorization_can_be_changed_to_api_keys(deploy):
    deploy("e2e-keyed", Authorization="LAMBDA")
    # As a release, too, whose alias the API invokes from now on.
    made = deploy("e2e-keyed", Authorization="API_KEY", Release="2")
    assert Api(made.url).request("GET", "/health").status == 403
    assert Api(made.url, x_api_key="no" * 15).request("GET", "/health").status == 403
    assert Api(made.url, x_api_key=made.api_key).request("GET", "/health").status == 200


def test_secrets_come_from_parameter_store_and_secrets_manager(deploy, localstack, stack):
    ssm, secrets = localstack.client("ssm"), localstack.client("secretsmanager")
    ssm.put_parameter(Name="/e2e/redis/user", Value="e2e", Type="SecureString")
    secrets.create_secret(Name="e2e-redis", SecretString=json.dumps({"password": "sesame"}))
    ssm.close()
    secrets.close()
    for node in stack.redis.nodes:
        with redis.Redis(port=node.port) as client:
            client.acl_setuser("e2e", enabled=True, passwords="+sesame", keys="*", categories=["+@all"])
    references = {"RedisUsername": "ssm:/e2e/redis/user"}
    references["RedisPassword"] = "secretsmanager:e2e-redis#password"
    answer = Api(deploy("e2e-secrets", **references).url).request("GET", "/topics/flights")
    assert answer.status == 200, answer.body


@pytest.mark.long
def test_a_changed_route_is_deployed_a_broken_template_rolled_back_and_the_stack_deleted(
    deploy, localstack, tmp_path
):
    text = TEMPLATE.read_text()
    api = Api(deploy("e2e-changing").url)
    assert api.request("GET", "/clusters").status == 200
    renamed = tmp_path / "renamed.yaml"
    renamed.write_text(re.sub(r"^          /clusters:$", "          /elsewhere:", text, flags=re.MULTILINE))
    assert deploy("e2e-changing", renamed).changed
    assert api.request("GET", "/clusters").status == 403
    # The function knows no such path, and says so itself.
    assert api.request("GET", "/elsewhere").json["type"] == "urn:keylane:problem:unknown-route"
    broken = tmp_path / "broken.yaml"
    bad_queue = "  Broken:\n    Type: AWS::SQS::Queue\n    Properties: {QueueName: not/a/name}\n\nOutputs:"
    broken.write_text(text.replace("\nOutputs:", "\n" + bad_queue, 1))
    with pytest.raises(DeployFailed, match=r"Broken: .*alphanumeric"):
        deploy("e2e-changing", broken)
    assert api.request("GET", "/clusters").status == 403
    assert api.request("GET", "/elsewhere").status == 404
    assert deploy("e2e-changing").changed
    assert api.request("GET", "/clusters").status == 200
    client = localstack.client("cloudformation")
    CloudStack(client, "e2e-changing").delete()
    client.close()
    assert api.request("GET", "/clusters").status in {403, 404}
    functions = localstack.client("lambda")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        functions.get_function(FunctionName="e2e-changing-query")
    functions.close()


def test_records_of_the_queue_keep_the_order_of_their_key(api, stack, key):
    for number in range(20):
        answer = api.request("PUT", path_of("flights", key), b"%d" % number, Prefer="respond-async")
        assert answer.status == 202, answer.body

    def values():
        found = [records_of(stack.kafka_bootstrap, "flights", each) for each in range(9)]
        return [value for records in found for name, value in records if name == key]

    eventually(lambda: len(values()) >= 20, 60)
    seen = list(dict.fromkeys(values()))
    assert seen == [b"%d" % number for number in range(20)]
