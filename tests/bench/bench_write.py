"""Writes by a warm produce function, event in to answer out, beside bare confluent-kafka on the same broker.

`write-put`: one record of one key, beside a produce and a flush. `write-batch`: 500 records in one request,
beside a bare producer that sends as many and flushes, and one that never waits. All of them alternate.
`write-memory`: the resident memory of a function's process under AWS's own runtime, over many pushes.

The bare producers have the function's settings (acks=all, idempotent, no linger); the one that never waits
has librdkafka's default linger of 5 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil
from confluent_kafka import Producer
from harness import ROOT, ResultRow, in_turns, latency, parse, report, spread
from stage import broker
from state import CONTEXT, event_of
from tests.support.builders import load_handler

from keylane.metrics.emf import EmfLog
from keylane.wiring.runtime import Runtime
from keylane_local.process.lambda_process import Function, LambdaProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[[int], float]

TOPIC, PARTITIONS = "written", 9
BATCH = 500
STREAM_ROUNDS = 20
BARE = "bare produce + flush"
STREAM = "bare producer that never waits"
PUT = "function: PUT of a key"
PUSH = "function: POST /push"
JSON = "function: REST Proxy, JSON"
BINARY = "function: REST Proxy, binary"
WARM_UP = 200
JSON_BODY = (("Content-Type", "application/json"),)
NOTHING = 'def lambda_handler(event, context):\n    return {"statusCode": 200, "body": ""}\n'
SETTINGS = {
    "partitioner": "murmur2_random",
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "socket.nagle.disable": True,
}


def environment(bootstrap: str) -> dict[str, str]:
    return {"KEYLANE_KAFKA_BOOTSTRAP": bootstrap}


def value_of(size_bytes: int) -> str:
    """Return JSON of this many bytes."""
    start = '{"origin": "EWR", "dest": "IAH", "note": "'
    return f'{start}{"x" * max(0, size_bytes - len(start) - 2)}"}}'


class InProcess:
    """The function's handler in this process, and bare producers."""

    def __init__(self, bootstrap: str) -> None:
        os.environ.update(environment(bootstrap))
        # Its log lines would disturb the tables.
        patch.object(Runtime, "open_metrics", lambda *_: EmfLog("bench", lambda _: None)).start()
        module = load_handler("produce")
        self._handler: Callable[[dict[str, Any], Any], dict[str, Any]] = module.lambda_handler
        self.bare = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
        self.stream = Producer(
            {
                "bootstrap.servers": bootstrap,
                **SETTINGS,
                "linger.ms": 5,
                "queue.buffering.max.messages": 500_000,
            }
        )

    def answered_s(self, event: dict[str, Any], expected: int) -> float:
        """Return the seconds until the function answers; exit if it does not succeed."""
        begun = time.perf_counter()
        answer = self._handler(event, CONTEXT)
        taken = time.perf_counter() - begun
        if answer["statusCode"] != expected or '"err' in answer["body"].replace('"errors": []', "").replace(
            '"error_code": null, "error": null', ""
        ):
            raise SystemExit(f"the function did not write: {answer}")
        return taken


def bare_s(producer: Producer, records: list[tuple[bytes | None, bytes]]) -> float:
    """Return the seconds for this many records and a flush."""
    begun = time.perf_counter()
    for key, value in records:
        producer.produce(TOPIC, value, key)
    if producer.flush(30):
        raise SystemExit("Kafka did not take all records")
    return time.perf_counter() - begun


def warmed_up(ways: dict[str, Way], rounds: int, warm_up: int) -> dict[str, list[float]]:
    """Return the results of each way in so many rounds."""
    for number in range(warm_up):
        for way in ways.values():
            way(number)
    return in_turns(ways, range(rounds))


def put(ours: InProcess, chosen: argparse.Namespace) -> None:
    value = value_of(chosen.value_bytes).encode()

    def through_function(number: int) -> float:
        event = event_of("PUT", f"/topics/{TOPIC}/keys/key-{number}", value, JSON_BODY)
        return ours.answered_s(event, 201) * 1e6

    def bare(number: int) -> float:
        return bare_s(ours.bare, [(b"key-%d" % number, value)]) * 1e6

    samples = warmed_up({BARE: bare, PUT: through_function}, chosen.puts, WARM_UP)
    rows = [ResultRow(name, latency(taken)) for name, taken in samples.items()]
    aim = "p50 at most 1.3x the bare producer's"
    report("write-put", "us", rows, reference=BARE, settings=vars(chosen), aim=aim)


def batch(ours: InProcess, chosen: argparse.Namespace) -> None:
    value = value_of(1024)
    names = [f"key-{number}" for number in range(BATCH)]
    bare_records = [(name.encode(), value.encode()) for name in names]
    by_rest = f"/topics/{TOPIC}"
    documents = {
        PUSH: ("/push", "application/json", [{"topic": TOPIC, "key": name, "data": value} for name in names]),
        JSON: (
            by_rest,
            "application/vnd.kafka.json.v2+json",
            [{"key": name, "value": json.loads(value)} for name in names],
        ),
        BINARY: (
            by_rest,
            "application/vnd.kafka.binary.v2+json",
            [{"key": "a2V5", "value": "eHh4eHh4eHh4" * 85} for _ in names],
        ),
    }

    def through_function(target: str, media_type: str, records: list[dict[str, Any]]) -> Way:
        body = json.dumps({"records": records, **({"wait_for_send": True} if target == "/push" else {})})

        def way(_: int) -> float:
            event = event_of("POST", target, body.encode(), (("Content-Type", media_type),))
            return BATCH / ours.answered_s(event, 200)

        return way

    ways: dict[str, Way] = {
        BARE: lambda _: BATCH / bare_s(ours.bare, bare_records),
        STREAM: lambda _: STREAM_ROUNDS * BATCH / bare_s(ours.stream, bare_records * STREAM_ROUNDS),
        **{name: through_function(*each) for name, each in documents.items()},
    }
    samples = warmed_up(ways, chosen.batches, 10)
    rows = [ResultRow(name, spread(taken)) for name, taken in samples.items()]
    aim = "the function at least 0.5x of a bare producer"
    report("write-batch", "records/s", rows, reference=BARE, settings=vars(chosen), aim=aim)


def memory(bootstrap: str, chosen: argparse.Namespace) -> None:
    record = {"topic": TOPIC, "key": "key", "data": value_of(4096)}
    body = json.dumps({"records": [record], "wait_for_send": True}).encode()
    event = json.dumps(event_of("POST", "/push", body, JSON_BODY)).encode()
    with tempfile.TemporaryDirectory(prefix="keylane-bench-") as folder:
        (Path(folder) / "handler.py").write_text(NOTHING)
        nothing = curve_of(Path(folder), {}, event, chosen.pushes // 4)
        found = curve_of(ROOT / "functions/produce", environment(bootstrap), event, chosen.pushes)
    rows = [
        ResultRow("a function that does nothing, at its end", {"MiB": nothing[-1][1]}),
        ResultRow("ours, before its first push", {"MiB": found[0][1]}),
        *(ResultRow(f"ours, after {number:,}", {"MiB": size}) for number, size in found[1::5]),
        ResultRow("ours, the most", {"MiB": max(size for _, size in found)}),
    ]
    facts = {
        "bytes more for each request, second half": round(slope_bytes(found), 1),
        "the same of a function that does nothing, under the same runtime": round(slope_bytes(nothing), 1),
        "curve": found,
    }
    aim = "under 128 MiB, and flat"
    settings = vars(chosen)
    report("write-memory", "MiB", rows, reference=rows[0].name, settings=settings, facts=facts, aim=aim)


def curve_of(code: Path, variables: dict[str, str], event: bytes, count: int) -> list[tuple[int, float]]:
    """Return (requests, resident MiB) of a function under AWS's runtime: at the start and 50 times after."""
    with tempfile.TemporaryDirectory(prefix="keylane-bench-") as folder:
        layer, log = ROOT / "layers/keylane/python", Path(folder) / "log"
        function = Function(name="keylane-bench", code=code, layer=layer, log=log, variables=variables)
        with LambdaProcess(function) as running:
            process = psutil.Process(running.pid)
            curve = [(0, resident_mib(process))]
            for number in range(1, count + 1):
                answer = running.call(event, f"bench-{number}")
                if answer.failed or b'"statusCode": 200' not in answer.payload:
                    raise SystemExit(f"the function did not answer: {answer.payload!r}")
                if number % max(1, count // 50) == 0:
                    curve.append((number, resident_mib(process)))
    return curve


def slope_bytes(curve: list[tuple[int, float]]) -> float:
    """Return the growth per request in the second half of the curve."""
    (begin, small), (end, large) = curve[len(curve) // 2], curve[-1]
    return (large - small) * 2**20 / (end - begin)


def resident_mib(process: psutil.Process) -> float:
    return round(process.memory_info().rss / 2**20, 2)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=("put", "batch", "memory"))
    options.add_argument("--puts", type=int, default=3_000)
    options.add_argument("--value-bytes", type=int, default=1024)
    options.add_argument("--batches", type=int, default=100)
    options.add_argument("--pushes", type=int, default=100_000, help="of 4 KiB, for memory")
    chosen = parse(options)
    with broker(TOPIC, PARTITIONS) as kafka:
        bootstrap = kafka.bootstrap
        ours = InProcess(bootstrap)
        if chosen.only in {None, "put"}:
            put(ours, chosen)
        if chosen.only in {None, "batch"}:
            batch(ours, chosen)
        if chosen.only in {None, "memory"}:
            memory(bootstrap, chosen)


if __name__ == "__main__":
    main()
