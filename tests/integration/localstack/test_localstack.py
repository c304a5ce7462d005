"""LocalStack as a part of the local stack: what is asked of it here, others build on."""

from __future__ import annotations

import pytest

from keylane_local.errors import ToolMissing
from keylane_local.servers.localstack import LocalStack


def test_localstack_keeps_a_queue_a_parameter_and_a_secret(localstack):
    sqs, ssm, secrets = (localstack.client(name) for name in ("sqs", "ssm", "secretsmanager"))
    queue = sqs.create_queue(QueueName="kept.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="one", MessageGroupId="g", MessageDeduplicationId="1")
    assert sqs.receive_message(QueueUrl=queue)["Messages"][0]["Body"] == "one"
    ssm.put_parameter(Name="/kept/one", Value="two", Type="SecureString")
    assert ssm.get_parameter(Name="/kept/one", WithDecryption=True)["Parameter"]["Value"] == "two"
    secrets.create_secret(Name="kept", SecretString="three")
    assert secrets.get_secret_value(SecretId="kept")["SecretString"] == "three"
    for client in (sqs, ssm, secrets):
        client.close()


def test_localstack_connects_to_this_machine_only(localstack):
    s3 = localstack.client("s3")
    s3.create_bucket(Bucket="local-alone")
    cloudformation = localstack.client("cloudformation")
    template = '{"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}'
    cloudformation.create_stack(StackName="local-alone", TemplateBody=template)
    cloudformation.get_waiter("stack_create_complete").wait(
        StackName="local-alone", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    connections = localstack.program.process.net_connections()
    assert {connection.laddr.ip for connection in connections} == {"127.0.0.1"}
    assert "api.localstack.cloud" not in localstack.log.read_text()
    cloudformation.delete_stack(StackName="local-alone")
    for client in (s3, cloudformation):
        client.close()


def test_localstack_ignores_the_users_own_settings(localstack, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "of-the-user")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    sts = localstack.client("sts")
    assert sts.get_caller_identity()["Account"] == "000000000000"
    sts.close()


def test_without_localstack_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("KEYLANE_TOOLS", str(tmp_path))
    absent = LocalStack(tmp_path / "home", run=tmp_path, log=tmp_path / "log", port=1)
    with pytest.raises(ToolMissing, match="make setup-localstack"):
        absent.start()
