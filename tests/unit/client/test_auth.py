from __future__ import annotations

import pytest
from botocore.credentials import Credentials
from tests.unit.client.api_double import ApiDouble, found

from keylane_client import ApiKey, Bearer, Client, NoCredentials, SigV4

HOST = "https://a1.execute-api.eu-west-1.amazonaws.com/v1"


def headers_with(auth) -> dict:
    api = ApiDouble(found(1))
    api.client(auth=auth).topic("t").get("k")
    return api.requests[0].headers


def test_an_api_key_and_a_bearer_token_are_sent_and_not_shown():
    assert headers_with(ApiKey("secret"))["x-api-key"] == "secret"
    assert headers_with(Bearer("secret"))["Authorization"] == "Bearer secret"
    assert "secret" not in repr((ApiKey("secret"), Bearer("secret")))


def test_a_token_that_is_a_function_is_asked_for_each_request():
    tokens = iter(["a", "b"])
    api = ApiDouble(found(1), found(1))
    topic = api.client(auth=Bearer(lambda: next(tokens))).topic("t")
    topic.get("k")
    topic.get("k")
    assert [request.headers["Authorization"] for request in api.requests] == ["Bearer a", "Bearer b"]


def test_requests_are_signed_for_the_region_of_the_host_with_their_body():
    api = ApiDouble(found(1))
    auth = SigV4("eu-central-1", Credentials("AKID", "secret", "session"))
    api.client(auth=auth).topic("t").get("a/b")
    headers = api.requests[0].headers
    assert "/eu-central-1/execute-api/aws4_request" in headers["Authorization"]
    assert headers["X-Amz-Security-Token"] == "session"
    assert "host;" in headers["Authorization"]
    assert "user-agent" not in headers["Authorization"]


def test_signing_needs_a_region_and_credentials(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="does not name a region"):
        ApiDouble(found(1)).client(auth=SigV4(None, Credentials("a", "b"))).topic("t").get("k")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(NoCredentials):
        SigV4("eu-west-1")


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8080", "ftp://x", "http://", "https://x/?a=1", ""),
        *("http://x:port", "http://x:99999", "http://[::1", "http://x/\n", "http://x\x1b[31m"),
    ],
)
def test_what_is_not_the_url_of_an_api_is_refused(url):
    with pytest.raises(ValueError, match="is not the URL of an API"):
        Client(url)
