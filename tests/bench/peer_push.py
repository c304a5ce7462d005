"""`keylane serve` beside kprf, an HTTP proxy for producers: see bench_peers.py."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

import bench_serve
import bench_write
import boto3
import stage
import state
from confluent_kafka import Consumer, TopicPartition
from harness import ResultRow, report
from peers import QUIET, UNIT, WARM_UP_S, Contender, Load, in_turns, measured, wait_until, why_not_served

from keylane_local.process.ports import HOST, Ports
from keylane_local.process.program import Program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    import psutil

KPRF = "KEYLANE_PEER_KPRF"
SQS = "KEYLANE_PEER_SQS"
PEER = "kprf"
QUEUED = f"{bench_serve.SERVER}, write-ahead log"
MODES = {"sync": True, "async": False}
START_S, SETTLE_S = 20, 120
STILL_S = 1.0
STORED = "records in Kafka for 100 good answers"
IN_QUEUE = "records in the queue for 100 good answers"
AWS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
SETTINGS = """\
kafka:
  brokers: ['{bootstrap}']
  request_required_acks: -1
http:
  port: {port}
  metrics_port: {metrics_port}
"""
"""All else has kprf's defaults. Without its own acks it would wait for the leader only."""


def why_not() -> str:
    """Return why kprf cannot be measured, or an empty string."""
    return why_not_served(PEER, KPRF)


def settings_text(bootstrap: str, port: int, metrics_port: int) -> str:
    return SETTINGS.format(bootstrap=bootstrap, port=port, metrics_port=metrics_port)


def measure(chosen: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(stage.broker(bench_write.TOPIC, bench_write.PARTITIONS))
        nodes = stack.enter_context(stage.cluster(replicas=0))
        broker = {"Kafka": [kafka.program.process]}
        variables = {**state.environment(nodes), "KEYLANE_KAFKA_BOOTSTRAP": kafka.bootstrap}
        served = stack.enter_context(stage.standing_server(variables, chosen.workers))
        queue = stack.enter_context(sqs())
        url, process = stack.enter_context(kprf(kafka.bootstrap))
        ours = bench_serve.contender(served, broker)
        theirs = Contender(PEER, url, process, broker)
        end = stack.enter_context(contextlib.closing(End(kafka.bootstrap)))
        for mode, waits in MODES.items():
            print(f"pushes, {mode}", flush=True)
            script = bench_serve.PUSHES.format(body=bench_serve.push_body(wait_for_send=waits))
            load = partial(Load, "/push", script, chosen.push_connections)
            pairs: list[tuple[Contender, End | QueueEnd]] = [(ours, end), (theirs, end)]
            if queue and not waits:
                queue_end, process = queue
                settings = {**variables, **queue_end.environment}
                running = stack.enter_context(stage.standing_server(settings, chosen.workers))
                pairs.append((bench_serve.contender(running, {"SQS": [process]}, QUEUED), queue_end))
            for each, its_end in pairs:
                push(each, load(WARM_UP_S), its_end)
            turns = {each.name: partial(push, each, load(chosen.seconds), its_end) for each, its_end in pairs}
            rows, facts = without_stored(in_turns(turns, chosen.rounds))
            report(f"peers-push-{mode}", UNIT, rows, reference=PEER, settings=vars(chosen), facts=facts)


def push(contender: Contender, load: Load, end: End | QueueEnd) -> dict[str, float]:
    """Return the figures of a load, and how many records of it are stored."""
    before = end.settled()
    good, figures = measured(contender, load, settle=end.settled)
    return figures | {end.stored: 100 * (end.offset() - before) / good}


def without_stored(rows: Sequence[ResultRow]) -> tuple[list[ResultRow], dict[str, float]]:
    """Return rows, and as facts what of their answers Kafka has stored: a ratio of it says nothing."""
    names = {STORED, IN_QUEUE}
    facts = {
        f"{row.name}: {name}": round(row.figures[name], 1) for row in rows for name in names & {*row.figures}
    }
    kept = [
        ResultRow(row.name, {name: row.figures[name] for name in row.figures if name not in names})
        for row in rows
    ]
    return kept, facts


class End:
    """The end of the topic: how many records Kafka has stored."""

    stored = STORED

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({**QUIET, "bootstrap.servers": bootstrap, "group.id": "peers"})

    def offset(self) -> int:
        """Return the sum of all partitions' end offsets."""
        places = [TopicPartition(bench_write.TOPIC, each) for each in range(bench_write.PARTITIONS)]
        return sum(self._consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)

    def settled(self) -> int:
        """Return the offset once nothing more arrives: servers may write after they answer."""
        last, since_s = self.offset(), time.monotonic()

        def is_still() -> bool:
            nonlocal last, since_s
            if (now := self.offset()) != last:
                last, since_s = now, time.monotonic()
            return time.monotonic() - since_s >= STILL_S

        wait_until(is_still, SETTLE_S, "records still arrive")
        return last

    def close(self) -> None:
        self._consumer.close()


class QueueEnd:
    """The write-ahead log's queue: how many messages it has; nobody takes them. A push is one message."""

    stored = IN_QUEUE

    def __init__(self, endpoint: str) -> None:
        session = boto3.Session(
            AWS["AWS_ACCESS_KEY_ID"], AWS["AWS_SECRET_ACCESS_KEY"], region_name=AWS["AWS_REGION"]
        )
        self._sqs = session.client("sqs", endpoint_url=endpoint)
        created = self._sqs.create_queue(QueueName="wal.fifo", Attributes={"FifoQueue": "true"})
        self._url: str = created["QueueUrl"]
        self.environment = {**AWS, "AWS_ENDPOINT_URL": endpoint, "KEYLANE_QUEUE_URL": self._url}

    def offset(self) -> int:
        name = "ApproximateNumberOfMessages"
        found = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=[name])
        return int(found["Attributes"][name])

    settled = offset
    """Records are in the queue before they are answered."""


@contextlib.contextmanager
def sqs() -> Iterator[tuple[QueueEnd, psutil.Process] | None]:
    """Yield a queue of a server that speaks SQS, and its process; None where none is installed."""
    if why := why_not_served("SQS", SQS):
        print(why)
        yield None
        return
    port = Ports().any()
    with stage.own_folder() as data:
        command = [word.replace("{port}", str(port)) for word in shlex.split(os.environ[SQS])]
        program = Program("SQS", command, data / "run" / "sqs.json", data / "logs" / "sqs.log")
        program.start()
        program.wait_until(lambda: is_open(port), START_S)
        process = program.process
        assert process is not None
        yield QueueEnd(f"http://{HOST}:{port}"), process


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=5):
        return True
    return False


@contextlib.contextmanager
def kprf(bootstrap: str) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the address and the process of kprf; it stops with the block."""
    ports = Ports()
    port = ports.any()
    with stage.own_folder() as data:
        file = data / "kprf.yaml"
        file.write_text(settings_text(bootstrap, port, ports.any()))
        binary = os.environ[KPRF]
        log = data / "logs" / "kprf.log"
        program = Program(PEER, [binary, "--config", file], data / "run" / "kprf.json", log)
        program.start()
        program.wait_until(lambda: stores(port), START_S)
        process = program.process
        assert process is not None
        yield f"http://{HOST}:{port}", process


def stores(port: int) -> bool:
    """Return whether a push that waits for Kafka succeeds."""
    record = {"topic": bench_write.TOPIC, "key": "k", "data": "{}"}
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        body = json.dumps({"records": [record], "wait_for_send": True})
        connection.request("POST", "/push", body, {"Content-Type": "application/json"})
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
