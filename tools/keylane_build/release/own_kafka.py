"""The walk of a new user: Kafka with a login, Redis and a Schema Registry, none of which Keylane started.

Each answer over HTTP is compared with what this module computes from the records that it has written, also
while the job is dead, and while Kafka is stopped.
"""

import contextlib
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from keylane_build.release.installed import Installed
from keylane_build.release.own_servers import KafkaWithLogin, own_servers
from keylane_build.release.own_topics import (
    CUSTOMERS,
    ORDERS,
    STATES,
    STATIONS,
    VISITS,
    Written,
    write_topics,
)
from keylane_build.release.versions import NotReleasable
from keylane_local.process.ports import HOST, Ports
from keylane_local.process.processes import find_process, stop_now
from keylane_local.servers.redis_cluster import RedisCluster

_LOGIN = {
    "KEYLANE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "KEYLANE_KAFKA_SASL_MECHANISM": "PLAIN",
    "KEYLANE_KAFKA_SASL_USERNAME": "ann",
    "COLUMNS": "250",
}
_PASSWORD = {"KEYLANE_KAFKA_SASL_PASSWORD": "right"}
_READY_S, _REFUSED_S, _PAGE, _SHOWN = 180.0, 30.0, 37, 600
_LOW, _HIGH = 20, 60
_MORE_CONFIG = f"""
[topics."{ORDERS}".fields]
state = "text"
amount = "number"
[views.orders_by_state]
topic = "{ORDERS}"
of = "keys"
key = "state"
columns = {{ orders = "count()", worth = "sum(amount)" }}
[views.customers_by_city]
topic = "{CUSTOMERS}"
key = "city"
columns = {{ customers = "count()" }}
[views.visits_by_page]
topic = "{VISITS}"
key = "page"
time = "at"
window = "1h"
lateness = "30d"
columns = {{ visits = "count()", took = "sum(ms)" }}
"""


class Api:
    """The server over HTTP. `right`: how many answers were the expected ones."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.right = 0

    def ask(
        self, path: str, body: object = None, *, put: bool = False, expect: int = 200, **headers: str
    ) -> Any:
        """Return the JSON of an answer. Raises NotReleasable if its status is another one."""
        data = None if body is None else json.dumps(body).encode()
        method = "PUT" if put else "GET" if data is None else "POST"
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self._url}{path}", data, names, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_READY_S) as answer:  # noqa: S310
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        if status != expect and not (put and status == HTTPStatus.CREATED and expect == HTTPStatus.OK):
            raise NotReleasable(f"{method} {path} is {status}, not {expect}: {text.decode()}")
        return json.loads(text)

    def pages(self, path: str, member: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of all pages."""
        cursor: str | None = ""
        while cursor is not None:
            page = self.ask(f"{path}&limit={_PAGE}" + (f"&cursor={cursor}" if cursor else ""))
            yield from page[member]
            cursor = page.get("next")

    def compare(self, question: str, answer: object, expected: object) -> None:
        """Count a right answer. Raises NotReleasable, with both answers, for another one."""
        if answer != expected:
            given, computed = (json.dumps(each)[:_SHOWN] for each in (answer, expected))
            raise NotReleasable(f"{question}: the answer is\n  {given}\nbut the records make\n  {computed}")
        self.right += 1

    def compare_all(self, written: Written) -> None:
        """Ask keys one by one and many at once, ranges, counts, finds and views."""
        for topic in (ORDERS, CUSTOMERS, STATIONS):
            self._compare_keys(topic, written.topics[topic])
        rows = written.rows(ORDERS)
        for bounds, low, high in (
            ("from=A-01&to=A-03", "A-01", "A-03"),
            ("prefix=A-07", "A-07", "A-08"),
        ):
            path = f"/topics/{ORDERS}/keys?{bounds}"
            found = [(each["key"], each["value"]) for each in self.pages(path, "records")]
            self.compare(path, found, [(key, rows[key]) for key in rows if low <= key < high])
        self.compare("the count of orders", self.ask(f"/topics/{ORDERS}/count")["count"], len(rows))
        for state in STATES:
            path = f"/topics/{ORDERS}/find?state={state}&amount={_LOW}..{_HIGH}"
            wanted = {
                key: row
                for key, row in rows.items()
                if row["state"] == state and _LOW <= row["amount"] <= _HIGH
            }
            ordered = list(self.pages(f"{path}&order=-amount", "records"))
            amounts = [each["value"]["amount"] for each in ordered]
            self.compare(f"{path}, in order", amounts, sorted(amounts, reverse=True))
            self.compare(path, dict(sorted((each["key"], each["value"]) for each in ordered)), wanted)
            self.compare(f"{path}&count=true", self.ask(f"{path}&count=true")["count"], len(wanted))
        for view, windows in written.views().items():
            found = [_window(each) for each in self.pages(f"/views/{view}/keys?key_from=", "windows")]
            self.compare(f"view {view}", found, windows)
            key = windows[-1][0]
            path = f"/views/{view}/keys/{urllib.parse.quote(key, safe='')}"
            found = [_window(each) for each in self.ask(path)["windows"]]
            self.compare(path, found, [each for each in windows if each[0] == key])

    def _compare_keys(self, topic: str, expected: Mapping[str, Any]) -> None:
        keys = list(expected)
        for begin in range(0, len(keys), 500):
            many = keys[begin : begin + 500]
            records = self.ask(f"/topics/{topic}/keys:read", {"keys": many})["records"]
            for key, record in zip(many, records, strict=True):
                self.compare(f"{topic} {key}, among many", record.get("value"), expected[key])
        for key in keys[::20]:
            path, is_there = f"/topics/{topic}/keys/{key}", expected[key] is not None
            answer = self.ask(path, expect=200 if is_there else 404)
            self.compare(path, answer if is_there else None, expected[key])


def _window(each: Mapping[str, Any]) -> tuple[Any, ...]:
    return each["key"], each.get("start"), each["values"]


def try_own_kafka(here: Installed) -> None:
    """`keylane new`, an edited keylane.toml, `up`, all kinds of reads, writes, failures, `down`."""
    project = here.inside("orders")
    with own_servers(here.folder / "theirs") as (kafka, redis, registry), contextlib.ExitStack() as stack:
        written = write_topics(kafka.bootstrap)
        variables = _LOGIN | _PASSWORD | {"KEYLANE_SCHEMA_REGISTRY_URL": registry}
        _expect_causes(here, kafka, redis, variables)
        with _timed("keylane new"):
            new = ("keylane", "new", "orders", "--kafka", kafka.login, "--redis", redis.addresses)
            said = here.run(*new, exit_code=0, **variables)
            _expect_in(said, f"{ORDERS}: partitioner crc32", f"{VISITS}: left out, because its first records")
        _replace(
            project.folder / "keylane.toml", f'[topics."{ORDERS}"]', f'[topics."{ORDERS}"]\nindex = true'
        )
        with (project.folder / "keylane.toml").open("a", encoding="utf-8") as config:
            config.write(_MORE_CONFIG)
        with (project.folder / "keylane.env").open("a", encoding="utf-8") as settings:
            settings.writelines(f"{name}={value}\n" for name, value in _PASSWORD.items())
        with _timed("keylane check"):
            project.expect("keys of", "keylane", "check")
        stack.callback(project.run, "keylane", "down", "--wipe")
        with _timed("keylane up, until it returns"):
            # Progress: a line for each part, with the time since the command began.
            _expect_in(
                project.run("keylane", "up"), r"(?m)^ *\d+\.\d s +job +", r"(?m)^ *\d+\.\d s +server +"
            )
        port = json.loads((project.folder / ".keylane" / "stack.json").read_text("utf-8"))["http_port"]
        api = Api(f"http://{HOST}:{port}")
        with _timed("then, until all answers are right"):
            _until_right(api, written, project)
        _until_status(
            project,
            0,
            *(rf"topic {re.escape(name)} +complete +lag 0" for name in written.topics if name != VISITS),
        )
        _expect_refusal(api, project)
        _write(api, 7, written, project)
        _kill_job(api, written, project)
        _stop_kafka(kafka, api, written, project)
        with _timed("keylane down"):
            project.run("keylane", "down")
        if not (kafka.running and redis.running):
            raise NotReleasable("keylane down stopped servers that keylane up did not start")
        print(f"own Kafka: {api.right:,} answers are those that were computed", flush=True)


def _expect_causes(
    here: Installed, kafka: KafkaWithLogin, redis: RedisCluster, variables: Mapping[str, str]
) -> None:
    """A wrong port and a wrong password are one sentence each, with exit code 5, soon."""
    nowhere = f"{HOST}:{Ports().any()}"
    wrong = {**variables, "KEYLANE_KAFKA_SASL_PASSWORD": "wrong"}
    for brokers, nodes, given, cause in (
        (nowhere, redis.addresses, variables, f"kafka: .*{nowhere}.*Connection refused.* Is --kafka right"),
        (kafka.login, nowhere, variables, f"redis: {nowhere}: .*Connection refused"),
        (kafka.login, redis.addresses, wrong, f"kafka: .*{kafka.login}.*_USERNAME and ..._PASSWORD fit"),
    ):
        started_s = time.monotonic()
        new = ("keylane", "new", "none", "--kafka", brokers, "--redis", nodes)
        _expect_in(here.run(*new, exit_code=5, **given), cause)
        if time.monotonic() - started_s > _REFUSED_S or (here.folder / "none").exists():
            raise NotReleasable(f"{' '.join(new)} took more than {_REFUSED_S} s, or left files")


def _expect_refusal(api: Api, project: Installed) -> None:
    """Nothing is written to somebody's topic that keylane.env does not allow; then one topic is allowed."""
    refused = api.ask(f"/topics/{ORDERS}/keys/A-0007", {"of": 1}, put=True, expect=403)
    _expect_in(json.dumps(refused), "topic-not-served")
    _expect_in(project.run("keylane", "put", ORDERS, "A-0007", "1", exit_code=4), "KEYLANE_TOPICS")
    _replace(project.folder / "keylane.env", '"write": []', f'"write": ["{ORDERS}"]')
    _expect_in(project.run("keylane", "up"), "KEYLANE_TOPICS changed")


def _write(api: Api, number: int, written: Written, project: Installed) -> None:
    """A write over HTTP, the read that waits for it, and then all other answers."""
    path, value = f"/topics/{ORDERS}/keys/A-{number:04}", {"state": "sent", "amount": 1_000 + number}
    with _timed("a write over HTTP, and the read that waits for it"):
        position = api.ask(path, value, put=True)["position"]
        api.compare(path, api.ask(path, Keylane_Min_Position=position, Prefer="wait=20"), value)
    written.topics[ORDERS][f"A-{number:04}"] = value
    _until_right(api, written, project)


def _kill_job(api: Api, written: Written, project: Installed) -> None:
    job = find_process(project.folder / ".keylane" / "run" / "job.json")
    if job is None:
        raise NotReleasable("the job does not run")
    stop_now(job)
    with _timed("a dead job, until status says so"):
        _until_status(project, 1, "nothing is known since .*job does not run", never="complete")
    api.compare_all(written)
    project.run("keylane", "up")
    _write(api, 8, written, project)


def _stop_kafka(kafka: KafkaWithLogin, api: Api, written: Written, project: Installed) -> None:
    kafka.stop()
    with _timed("a write to a stopped Kafka, until it is refused"):
        started_s = time.monotonic()
        refused = api.ask(f"/topics/{ORDERS}/keys/A-0009", {"of": 1}, put=True, expect=503)
        _expect_in(json.dumps(refused), "log-unavailable")
        if time.monotonic() - started_s > _REFUSED_S:
            raise NotReleasable(f"the write was refused after more than {_REFUSED_S} s")
    api.compare_all(written)
    with _timed("a stopped Kafka, until status says so"):
        # The exit code is about the parts that keylane up started.
        _until_status(project, 0, "nothing is known since .*kafka", never="complete")
    kafka.start()
    kafka.wait_ready(_READY_S)
    project.run("keylane", "up")
    _write(api, 9, written, project)


def _until_right(api: Api, written: Written, project: Installed) -> None:
    until_s, before = time.monotonic() + _READY_S, api.right
    while True:
        try:
            return api.compare_all(written)
        except (NotReleasable, OSError) as error:
            api.right = before
            if time.monotonic() > until_s:
                raise NotReleasable(f"{error}\n{project.run('keylane', 'logs', 'job')}") from error
            time.sleep(0.2)


def _until_status(project: Installed, exit_code: int, *wanted: str, never: str = "^$") -> None:
    until_s = time.monotonic() + _READY_S
    while True:
        try:
            said = project.run("keylane", "status", exit_code=exit_code, COLUMNS="250")
            return _expect_in(said, *wanted, never=never)
        except NotReleasable:
            if time.monotonic() > until_s:
                raise


def _expect_in(said: str, *patterns: str, never: str = "^$") -> None:
    for pattern in patterns:
        if not re.search(pattern, said):
            raise NotReleasable(f"{pattern!r} is not in\n{said}")
    if re.search(never, said):
        raise NotReleasable(f"{never!r} is in\n{said}")


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    if old not in text:
        raise NotReleasable(f"{file.name} has no {old}:\n{text}")
    file.write_text(text.replace(old, new), encoding="utf-8")


@contextlib.contextmanager
def _timed(what: str) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    print(f"own Kafka: {what}: {time.monotonic() - started_s:.2f} s", flush=True)
