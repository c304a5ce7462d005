"""Kafka killed under load: whatever was accepted is in Kafka afterwards, in order within each key."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.aws import Mapping
from tests.servers.own import create_topic, messages_of, own_kafka
from tests.support.builders import FUNCTIONS, a_topic, an_event

from keylane.produce import message_codec
from keylane_local.process.lambda_process import Function, LambdaProcess
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.aws import Aws

    from keylane_local.servers.kafka import Kafka

OUTAGE_S = float(os.environ.get("KEYLANE_TEST_OUTAGE_S", "30"))
BEFORE_S, AFTER_S = 2, 2
WRITERS, KEYS_EACH, POLLERS = 2, 20, 2
PAUSE_S = 0.15
DRAINED_WITHIN_S = 100
PARTITIONS = 3
DRAIN_TIMEOUT_MS, VISIBILITY_S = 1_500, 12
"""A message that becomes visible while it is worked on is overtaken: as AWS says, several times as long."""


class Outage:
    """Writers and pollers of the queue, each with a function of its own, and a broker that is killed."""

    def __init__(self, moto: Aws, kafka: Kafka, data: Path) -> None:
        self.moto = moto
        self.kafka = kafka
        self.topic = a_topic()
        create_topic(kafka.bootstrap, self.topic, PARTITIONS)
        dead = moto.queue()
        self.dead = dead
        self.url = moto.queue(visibility_s=VISIBILITY_S, dead=dead, receives=1_000)
        variables = {
            "KEYLANE_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "KEYLANE_QUEUE_URL": self.url,
            "KEYLANE_QUEUE_GROUPS": "6",
            "KEYLANE_DLQ_URL": dead,
            # For moto, which shares this process and its machine with all else.
            "KEYLANE_PRODUCE_TIMEOUT_MS": "20000",
            "KEYLANE_DRAIN_TIMEOUT_MS": str(DRAIN_TIMEOUT_MS),
            **moto.environment,
        }
        layer = project_root() / "layers" / "keylane" / "python"
        log = data / "functions.log"
        self.functions = {
            name: Function(name, FUNCTIONS / name, layer, log, variables=variables)
            for name in ("produce", "drain")
        }
        self.accepted: dict[str, list[int]] = {}
        self.refused: list[str] = []
        self.again: list[str] = []
        self.is_writing = self.is_polling = True

    async def run(self) -> None:
        with contextlib.ExitStack() as opened:

            def start(function: str) -> LambdaProcess:
                return opened.enter_context(LambdaProcess(self.functions[function]))

            producers = [start("produce") for _ in range(WRITERS)]
            # A function that starts while its messages wait may let them become visible again.
            drains = [start("drain") for _ in range(POLLERS)]
            async with asyncio.TaskGroup() as tasks:
                writers = [
                    tasks.create_task(self._write(process, number))
                    for number, process in enumerate(producers)
                ]
                for process in drains:
                    tasks.create_task(self._poll(process))
                await asyncio.sleep(BEFORE_S)
                self.kafka.program.kill()
                await asyncio.sleep(OUTAGE_S)
                await asyncio.to_thread(self._start_kafka)
                await asyncio.sleep(AFTER_S)
                self.is_writing = False
                await asyncio.gather(*writers)
                await self._wait_drained()
                self.is_polling = False

    def _start_kafka(self) -> None:
        self.kafka.start()
        self.kafka.wait_ready(60)

    async def _write(self, process: LambdaProcess, writer: int) -> None:
        keys = [f"w{writer}-{number}" for number in range(KEYS_EACH)]
        for number in itertools.count():
            records = [{"topic": self.topic, "key": key, "data": str(number)} for key in keys]
            event = an_event("POST", "/push", body=json.dumps({"records": records}).encode())
            answer = await asyncio.to_thread(invoke, process, event)
            if answer["statusCode"] == 200:
                for key in keys:
                    self.accepted.setdefault(key, []).append(number)
            else:
                self.refused.append(answer["body"])
            if not self.is_writing:
                return
            await asyncio.sleep(PAUSE_S)

    async def _poll(self, process: LambdaProcess) -> None:
        mapping = Mapping(self.moto, self.url, partial(invoke, process), again=self.again)
        with self.moto.client("sqs") as sqs:
            while self.is_polling:
                if not await asyncio.to_thread(mapping.poll, sqs):
                    await asyncio.sleep(0.2)

    async def _wait_drained(self) -> None:
        end_s = time.monotonic() + DRAINED_WITHIN_S
        while left := await asyncio.to_thread(self.moto.count, self.url):
            assert time.monotonic() < end_s, f"{left} messages are left"
            await asyncio.sleep(0.3)


def invoke(process: LambdaProcess, event: dict[str, Any]) -> dict[str, Any]:
    answer = process.call(json.dumps(event).encode(), "request-1")
    assert not answer.failed, answer.payload
    found: dict[str, Any] = json.loads(answer.payload)
    return found


def records_in(bodies: list[str]) -> int:
    return sum(len(message_codec.decode(message_codec.from_body(body)).records) for body in bodies)


@pytest.mark.long
@pytest.mark.timeout(OUTAGE_S + 240)
def test_what_is_accepted_while_kafka_is_killed_is_in_kafka_afterwards_in_order(
    moto: Aws, tmp_path: Path, record_property: Any
):
    with own_kafka(tmp_path) as kafka:
        outage = Outage(moto, kafka, tmp_path)
        asyncio.run(outage.run())
        messages = [
            message
            for partition in range(PARTITIONS)
            for message in messages_of(kafka.bootstrap, outage.topic, partition)
        ]
        kafka.stop()
    assert not outage.refused, outage.refused[:3]
    counts = Counter(dict(message.headers())["keylane-id"] for message in messages)
    written: dict[str, list[int]] = {}
    seen = set()
    for message in messages:
        record_id = dict(message.headers())["keylane-id"]
        if record_id not in seen:
            seen.add(record_id)
            written.setdefault(message.key().decode(), []).append(int(message.value()))
    lost = {key: set(numbers) - set(written.get(key, [])) for key, numbers in outage.accepted.items()}
    assert not any(lost.values()), lost
    disorder = {
        key: [pair for pair in itertools.pairwise(numbers) if pair[0] >= pair[1]]
        for key, numbers in written.items()
    }
    assert not any(disorder.values()), disorder
    assert written == outage.accepted
    duplicates = sum(counts.values()) - len(counts)
    # A record is there once more for each time that its message came again, at most.
    assert duplicates <= records_in(outage.again)
    assert moto.count(outage.dead) == 0
    total = sum(map(len, outage.accepted.values()))
    assert total > OUTAGE_S * KEYS_EACH
    for name, value in (("accepted", total), ("duplicates", duplicates), ("again", len(outage.again))):
        record_property(name, value)
    print(f"accepted {total} records, {duplicates} duplicates, {len(outage.again)} messages came again")  # noqa: T201
