"""Records what a version leaves behind: `python -m tests.upgrade.record --to tests/upgrade/fixtures/VERSION`.

    --to FOLDER           a new folder, named for the version
    --checkout FOLDER     another checkout, whose job, server and functions write (default: this project)

`versions` says what is in the folder. Servers are the tests' own. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewPartitions
from tests.contract.hosts.checkouts import Checkout
from tests.contract.hosts.lambda_host import lambda_host
from tests.servers import aws as stand_ins
from tests.servers.own import create_topic, eventually, own_cluster, own_kafka
from tests.servers.standing import ready
from tests.support.events import listening
from tests.support.jobs import State
from tests.upgrade import sample
from tests.upgrade.live import CheckoutServer, start_job
from tests.upgrade.versions import LOG_CONFIG, Kept, append, ends_of, filled, stored_keys, topic_ids

from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.servers.aws import Aws
    from tests.upgrade.sample import Row

PACKED, FIRST, SECOND, THIRD = 400, 240, 120, 160
"""Records: enough for a dictionary; before there are strays, before a topic grows, and after it has grown."""
ENVIRONMENT = {
    "KEYLANE_REDIS_NODES": "{redis}",
    "KEYLANE_REDIS_TLS": "false",
    "KEYLANE_KAFKA_BOOTSTRAP": "{kafka}",
    "KEYLANE_KAFKA_SECURITY_PROTOCOL": "PLAINTEXT",
    "KEYLANE_STATE_TIMEOUT_MS": "5000",
    "KEYLANE_PRODUCE_TIMEOUT_MS": "20000",
    "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "2500",
    "KEYLANE_WAIT_DEFAULT_MS": "4000",
    "KEYLANE_WAIT_MAX_MS": "15000",
    "KEYLANE_LAYOUT_TTL_S": "1",
    "KEYLANE_EXPLORE_TIMEOUT_MS": "9000",
    "KEYLANE_HEALTH_TIMEOUT_MS": "3000",
    "KEYLANE_METRICS": "true",
    "KEYLANE_METRICS_NAMESPACE": "Upgrade",
    "KEYLANE_TOPICS": '{"read": ["*"], "write": ["*"]}',
    "KEYLANE_CORS_ORIGIN": "https://app.example.org",
    "KEYLANE_MAX_VALUE_BYTES": "900000",
    "KEYLANE_PARTITION_BY": '{"PREFIX-kept": "prefix:|"}',
    "KEYLANE_RATE_LIMITS": '{"topics": {"PREFIX-*": {"requests_per_minute": 1, "burst_s": 3600}}, '
    '"callers": {"*": {"requests_per_minute": 60000, "bytes_per_minute": 90000000}}}',
    "KEYLANE_RATE_LIMIT_TIMEOUT_MS": "5000",
    "KEYLANE_RATE_LIMIT_FAILURE": "closed",
    "KEYLANE_CALLER": "authorizer,source-ip",
    "KEYLANE_IDEMPOTENCY_EXPIRY_S": "2592000",
    "KEYLANE_IDEMPOTENCY_IN_PROGRESS_S": "60",
    "KEYLANE_QUEUE_URL": "{queue}",
    "KEYLANE_DLQ_URL": "{dead}",
    "KEYLANE_QUEUE_BUCKET": "{bucket}",
    "KEYLANE_QUEUE_GROUPS": "4",
    "KEYLANE_QUEUE_LIMIT_BYTES": "4096",
    "KEYLANE_ASYNC": "queue",
}
KINDS = {"json": "application/vnd.kafka.json.v2+json", "binary": "application/vnd.kafka.binary.v2+json"}
SETTING = re.compile(r"^\| `(KEYLANE_[A-Z0-9_]+)`", re.MULTILINE)


class Recorder:
    """One recording, on running servers."""

    def __init__(self, checkout: Checkout, places: Mapping[str, str], aws: Aws, folder: Path) -> None:
        self._checkout = checkout
        self._places = places
        self._aws = aws
        self._folder = folder
        self.prefix = f"kept{secrets.token_hex(3)}"
        self.log: list[Row] = []

    def environment(self) -> dict[str, str]:
        """The settings, with placeholders for addresses."""
        return {name: value.replace("PREFIX", self.prefix) for name, value in ENVIRONMENT.items()}

    def variables(self) -> dict[str, str]:
        """The settings with addresses."""
        return {**filled(self.environment(), self._places), **self._aws.environment}

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def write_state(self) -> None:
        """Let the version's job read a log with strays, a topic that grows, and views."""
        kafka, redis = self._places["kafka"], self._places["redis"]
        for name, topic in sample.TOPICS.items():
            create_topic(kafka, self.topic(name), topic.partitions, config=LOG_CONFIG)
        create_topic(kafka, self.topic(sample.QUEUED), 2, config=LOG_CONFIG)
        create_topic(kafka, self.topic(sample.REFUSED), 1, config={**LOG_CONFIG, "max.message.bytes": "200"})
        job = start_job(self._checkout, kafka, redis, self._folder, sample.config(self.prefix))
        try:
            self._append(sample.rows(0, PACKED, ("packed",)))
            self._append(sample.rows(0, FIRST, strays=False))
            job.wait_for("keylane: ready")
            self._wait_current()
            self._append(sample.rows(FIRST, SECOND))
            self._wait_current()
            admin = AdminClient({"bootstrap.servers": kafka})
            grown = NewPartitions(self.topic("grown"), sample.GROWN)
            admin.create_partitions([grown])[grown.topic].result(30)
            self._append(sample.rows(FIRST + SECOND, THIRD, grown=sample.GROWN))
            self._wait_current({"grown": sample.GROWN})
        finally:
            job.end()

    def _append(self, rows: list[Row]) -> None:
        append(self._places["kafka"], self.prefix, rows)
        self.log += rows

    def _wait_current(self, grown: Mapping[str, int] | None = None) -> None:
        """Wait until all lanes of topics are at the ends of the log, complete, and views have counted it."""
        ends = ends_of(self.log)
        for name, topic in sample.TOPICS.items():
            with contextlib.closing(State(self._places["redis"], self.topic(name))) as state:
                partitions = (grown or {}).get(name, topic.partitions)

                def is_current(state: State = state, name: str = name, partitions: int = partitions) -> bool:
                    layout = state.layout
                    if layout is None or layout.partition_count != partitions:
                        return False
                    found = state.watermarks(layout)
                    return all(
                        mark is not None
                        and mark.complete_as_of_ms
                        and mark.next_offset == ends[name, partition]
                        for (partition, _), mark in found.items()
                    )

                eventually(is_current, 120)
        eventually(self._views_are_current, 120)

    def _views_are_current(self) -> bool:
        ends = ends_of(self.log)
        for view, topic in sample.VIEWS.items():
            wanted = [ends[topic, partition] for partition in range(sample.TOPICS[topic].partitions)]
            stored = stored_keys(self._places["redis"], [f"{{*}}:~{self.topic(view)}:*:p:*"])
            found = [json.loads(each.content)["offsets"] for each in stored]
            if len(found) < 2 or any(offsets != wanted for offsets in found):
                return False
        return True

    def answers(self, server: CheckoutServer) -> Iterator[Kept]:
        """What the version's readers answer, and what it hands to clients."""
        for ask in sample.requests(self.prefix):
            yield self._asked(server, ask.method, ask.path, ask.body)
        for path in (
            f"/topics/{self.topic('plain')}/changes",
            f"/topics/{self.topic('plain')}/keys/k1/changes",
        ):
            with listening(server.url, path) as stream:
                event = stream.next_any()
                assert event is not None
                yield Kept("EVENTS", path, {}, "", 200, event.id, {})
        path = f"/topics/{self.topic(sample.QUEUED)}/keys/once"
        headers = {"Idempotency-Key": "kept-by-an-earlier-version", "Content-Type": "application/json"}
        yield self._asked(server, "PUT", path, '{"once": true}', headers)

    def _asked(
        self, server: CheckoutServer, method: str, path: str, body: str, headers: dict[str, str] | None = None
    ) -> Kept:
        reply = server.ask(method, path, body, headers)
        return Kept(method, path, headers or {}, body, reply.status, reply.body.decode(), reply.headers)

    def queue(self, server: CheckoutServer) -> dict[str, Any]:
        """Messages of every form, large ones in the bucket, and dead letters of the version's drain."""
        dead = self._dead_letters(server)
        self._queue_some(server, self.topic(sample.QUEUED))
        messages = [
            {
                "MessageBody": each["Body"],
                "MessageGroupId": each["Attributes"]["MessageGroupId"],
                "MessageDeduplicationId": each["Attributes"]["MessageDeduplicationId"],
            }
            for each in self._aws.messages(self._places["queue"])
        ]
        bucket = self._places["bucket"]
        with self._aws.client("s3") as s3:
            names = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
            objects = {
                name: s3.get_object(Bucket=bucket, Key=name)["Body"].read().decode("latin-1")
                for name in names
            }
        return {"messages": messages, "objects": objects, "dead": dead}

    def _queue_some(self, server: CheckoutServer, topic: str) -> None:
        queued = {"Prefer": "respond-async"}
        headers = [{"name": "h", "value": "1"}, {"name": "é", "value": "ü"}]
        full = {
            "key": "full",
            "value": {"n": 1},
            "partition": 1,
            "timestamp": sample.BASE_MS,
            "headers": headers,
        }
        plain = [{"key": "gone", "value": None}, {"value": {"n": 2}}, full]
        encoded = base64.b64encode(b"\x00\xff").decode()
        for kind, records in (("json", plain), ("binary", [{"key": encoded, "value": encoded}])):
            body = json.dumps({"records": records})
            path = f"/topics/{topic}?key_format=text" if kind == "json" else f"/topics/{topic}"
            reply = server.ask("POST", path, body, {**queued, "Content-Type": KINDS[kind]})
            assert reply.status == 202, reply
        large = json.dumps({"large": "x" * 5_000})
        for key, value in (("put", '{"n": 3}'), ("large", large)):
            reply = server.ask("PUT", f"/topics/{topic}/keys/{key}", value, queued)
            assert reply.status == 202, reply
        pushed = json.dumps({"records": [{"topic": topic, "key": "pushed", "data": "4"}]})
        reply = server.ask("POST", "/push", pushed)
        assert reply.status == 200, reply

    def _dead_letters(self, server: CheckoutServer) -> list[dict[str, Any]]:
        path, long = f"/topics/{self.topic(sample.REFUSED)}/keys/dead", json.dumps("x" * 300)
        reply = server.ask("PUT", path, long, {"Prefer": "respond-async"})
        assert reply.status == 202, reply
        url, log = self._places["queue"], self._folder / "drain.log"
        with lambda_host(self._checkout, self.variables(), log) as host:
            mapping = stand_ins.Mapping(self._aws, url, lambda event: host.invoke("drain", event)["answer"])
            mapping.drain()
        letters = self._aws.messages(self._places["dead"])
        assert letters, log.read_text(encoding="utf-8")
        return [
            {
                "MessageBody": each["Body"],
                "MessageGroupId": each["Attributes"]["MessageGroupId"],
                "MessageDeduplicationId": each["Attributes"]["MessageDeduplicationId"],
                "MessageAttributes": {
                    name: {"DataType": value["DataType"], "StringValue": value["StringValue"]}
                    for name, value in each["MessageAttributes"].items()
                },
            }
            for each in letters
        ]

    def about(self) -> dict[str, Any]:
        """What the version is, and what its state has of the servers it was recorded on."""
        root = self._checkout.root
        command = ("git", "-C", str(root), "rev-parse", "HEAD")
        page = (root / "docs" / "configuration" / "settings.md").read_text(encoding="utf-8")
        partitions = {name: topic.partitions for name, topic in sample.TOPICS.items()} | {
            "grown": sample.GROWN
        }
        return {
            "commit": subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip(),
            "prefix": self.prefix,
            "partitions": {**partitions, sample.QUEUED: 2, sample.REFUSED: 1},
            "topic_ids": topic_ids(self._places["kafka"], [self.topic(name) for name in sample.TOPICS]),
            "settings": sorted(set(SETTING.findall(page))),
        }


def record(checkout: Checkout, to: Path) -> None:
    """Record a checkout into a new folder."""
    with contextlib.ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keylane-upgrade-")))
        cluster = stack.enter_context(own_cluster(data / "cluster"))
        kafka = stack.enter_context(own_kafka(data / "broker"))
        aws = stack.enter_context(stand_ins.moto())
        dead = aws.queue()
        places = {
            "redis": cluster.addresses,
            "kafka": kafka.bootstrap,
            "queue": aws.queue(dead=dead, receives=3),
            "dead": dead,
            "bucket": aws.bucket(),
        }
        (data / "job").mkdir()
        recorder = Recorder(checkout, places, aws, data / "job")
        recorder.write_state()
        with ready(CheckoutServer(checkout, recorder.variables(), data / "server.log")) as server:
            queue, answers = recorder.queue(server), list(recorder.answers(server))
        keys = stored_keys(cluster.addresses, ["*"])
        to.mkdir(parents=True)
        for name, document in (
            ("about", recorder.about()),
            ("environment", recorder.environment()),
            ("queue", queue),
        ):
            (to / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        (to / "keylane.toml").write_text(sample.config(recorder.prefix), encoding="utf-8")
        _write_lines(to / "log.jsonl", [json.dumps(row) for row in recorder.log])
        _write_lines(to / "answers.jsonl", [json.dumps(each) for each in answers])
        _write_lines(to / "redis.jsonl", [each.to_json() for each in keys])


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkout", type=Path, default=project_root())
    parser.add_argument("--to", type=Path, required=True)
    given = parser.parse_args(arguments)
    record(Checkout.at(given.checkout), given.to)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
