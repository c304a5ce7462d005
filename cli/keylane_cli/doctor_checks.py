"""The checks of `keylane doctor`. Each looks at one thing, and never raises."""

import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

import httpx

from keylane import errors
from keylane.adapters.redis.eviction import SAFE_POLICY
from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.http import JsonHttp
from keylane.config.functions import renewable_registry
from keylane.ports import Clock, Deadline
from keylane_cli.survey import cluster
from keylane_client import Client, ClientOptions, KeylaneError, RetryPolicy
from keylane_client.cli.printing import without_login
from keylane_local import env_file, tools
from keylane_local.errors import StackError
from keylane_local.process.ports import is_free, owner_of
from keylane_local.setup.prerequisites import JAVA, REDIS, install_command
from keylane_local.stack import topics
from keylane_local.stack.stack import Stack

Result = Literal["ok", "warning", "failed"]
TIMEOUT_S = 10.0
MAX_SKEW_S = 5.0
"""Ages and times are compared between machines: a few seconds do no harm."""
USUAL_PORTS = {"kafka": 9092, "redis": 7000, "server": 8080}
_TROUBLE = "`keylane help troubleshooting`"
_REGISTRY_URL = "KEYLANE_SCHEMA_REGISTRY_URL"
_MS = TIMEOUT_S * 1000
_OK, _UNAUTHORIZED = 200, 401


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and what to do about it ("" if nothing)."""

    name: str
    result: Result
    found: str
    advice: str = ""


def check_machine(data_dir: Path, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check what `keylane up` needs: programs, jars, and its ports.

    A Kafka or a Redis that the environment names is not started, so it needs neither program nor port.
    """
    yield Check("python", "ok", platform.python_version())
    yield _check_java()
    if not environment.get(env_file.REDIS):
        yield _check_redis_server()
    jars = tools.tools_dir() / "jars"
    if any(jars.glob("kafka_*.jar")):
        yield Check("kafka", "ok", f"jars in {jars}")
    else:
        yield Check("kafka", "warning", f"no jars in {jars}", "`keylane up` downloads them, about 100 MB")
    yield from _check_ports(data_dir, environment)


def _check_redis_server() -> Check:
    server = tools.find_redis()
    if server:
        version = ".".join(map(str, tools.redis_version(server) or ()))
        return Check("redis-server", "ok", f"{version} at {server}")
    return Check("redis-server", "failed", "none on PATH that is new enough", install_command(REDIS))


def _check_java() -> Check:
    java = tools.find_java()
    if java:
        return Check("java", "ok", f"{tools.java_version(java)} at {java}")
    found = "none in JAVA_HOME or on PATH that is new enough"
    return Check("java", "failed", found, f"{install_command(JAVA)}, or set JAVA_HOME")


def _check_ports(data_dir: Path, environment: Mapping[str, str]) -> Iterator[Check]:
    stack = Stack(data_dir)
    if any(part.running for part in stack.parts):
        down = [part.name for part in stack.parts if not part.running]
        found = "runs" if not down else f"runs without {', '.join(down)}"
        yield Check(
            "local stack", "warning" if down else "ok", found, "`keylane up` starts them" if down else ""
        )
        return
    outsiders = {"kafka": env_file.KAFKA, "redis": env_file.REDIS}
    for part, port in USUAL_PORTS.items():
        if environment.get(outsiders.get(part, "")):
            continue
        if is_free(port):
            yield Check(f"port {port}", "ok", f"free for {part}")
        else:
            owner = owner_of(port) or "another process"
            advice = f"`keylane up` takes another port for {part}, or the one of --{part}-port"
            yield Check(f"port {port}", "warning", f"in use by {owner}", advice)


def check_api(url: str, auth: httpx.Auth | None) -> Iterator[Check]:
    """Check that the API answers, which of its parts are ready, and its clock."""
    options = ClientOptions(timeout_s=TIMEOUT_S, retries=RetryPolicy(attempts=1))
    try:
        with Client(url, auth, options=options) as client:
            health = client.health()
    except (KeylaneError, ValueError) as error:
        advice = "start the local stack with `keylane up`, or name an API, and its credentials, with --url"
        yield Check("api", "failed", f"{without_login(url)}: {error}", advice)
        return
    yield Check("api", "ok", f"{without_login(url)} answers")
    for name, part in health.get("parts", {}).items():
        if part.get("ready"):
            yield Check(f"api: {name}", "ok", f"ready in {part.get('took_ms')} ms")
        else:
            yield Check(
                f"api: {name}", "failed", f"not ready: {part.get('why', 'unknown')}", f"see {_TROUBLE}"
            )
    yield _check_clock(url, auth)


def _check_clock(url: str, auth: httpx.Auth | None) -> Check:
    try:
        before_s = time.time()
        response = httpx.get(f"{url.rstrip('/')}/health", auth=auth, timeout=TIMEOUT_S)
        after_s = time.time()
        server_s = parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (httpx.HTTPError, KeyError, TypeError, ValueError):
        return Check("clock", "warning", "the API's answer has no date to compare with")
    # A date has whole seconds, and any moment between request and answer is right.
    skew_s = max(0.0, before_s - (server_s + 1), server_s - after_s)
    if skew_s <= MAX_SKEW_S:
        return Check("clock", "ok", "agrees with the API's within a few seconds")
    advice = "set this machine's clock by NTP: signatures (IAM) and times in queries depend on it"
    return Check("clock", "failed", f"differs from the API's by {skew_s:.0f} s", advice)


def check_kafka(variables: Mapping[str, str], config: Path) -> Iterator[Check]:
    """Check that Kafka lets a client in that has these settings, and has the topics of the configuration."""
    if not variables.get(env_file.KAFKA):
        yield Check("kafka cluster", "warning", "not looked at", f"set {env_file.KAFKA} to look at Kafka")
        return
    try:
        wanted = topics.load_topics(config) if config.exists() else {}
        present, absent = cluster.find_topics({**variables, env_file.REDIS: ""}, wanted)
    except (StackError, errors.KeylaneError) as error:
        yield Check("kafka cluster", "failed", str(error), f"see {_TROUBLE}")
        return
    yield Check("kafka cluster", "ok", f"answers; number of topics: {len(present)}")
    for missing in absent:
        yield Check("topics", "failed", missing, f"correct {config}, or let the job create it: create_topics")


def check_redis(variables: Mapping[str, str]) -> Iterator[Check]:
    """Check that the cluster answers, and each node's `maxmemory-policy`: the state is not a cache."""
    name, nodes = "maxmemory-policy", variables.get(env_file.REDIS, "")
    if not nodes:
        yield Check(name, "warning", "not looked at", f"set {env_file.REDIS} to look at Redis")
        return
    try:
        named = cluster.find_eviction_policies(variables)
    except (StackError, errors.KeylaneError) as error:
        yield Check("redis cluster", "failed", str(error), f"see {_TROUBLE}")
        return
    yield Check("redis cluster", "ok", "answers")
    if not named:
        yield Check(name, "warning", f"cannot be read at {nodes}: the user may not run INFO")
    elif named == {SAFE_POLICY}:
        yield Check(name, "ok", SAFE_POLICY)
    else:
        advice = f"set maxmemory-policy to {SAFE_POLICY} on every node: an evicted key would be missing"
        yield Check(name, "failed", ", ".join(sorted(named)), advice)


def check_registry(variables: Mapping[str, str]) -> Iterator[Check]:
    """Check that the Schema Registry, if there is one, answers as the service asks: with login and CA."""
    name = "schema registry"
    if not variables.get(_REGISTRY_URL):
        return
    try:
        registry = JsonHttp(renewable_registry(variables), Circuit(_MS))
        status, _ = registry.request("/subjects?limit=1", Deadline.after_ms(_MS, Clock()))
    except errors.RegistryUnavailable as error:
        cause = error.__cause__
        found = f"{error} ({cause})" if isinstance(cause, OSError) and str(cause) else str(error)
        yield Check(name, "failed", found, f"start it, or correct {_REGISTRY_URL} or ..._CA_FILE")
        return
    except errors.KeylaneError as error:
        yield Check(name, "failed", str(error), f"see {_TROUBLE}")
        return
    if status == _OK:
        yield Check(name, "ok", "answers")
    elif status == _UNAUTHORIZED:
        advice = "do KEYLANE_SCHEMA_REGISTRY_USERNAME and ..._PASSWORD fit?"
        yield Check(name, "failed", f"rejects the login with {status}", advice)
    else:
        advice = "is it the URL of a registry, and may this user list its subjects?"
        yield Check(name, "warning", f"answers /subjects with {status}", advice)
