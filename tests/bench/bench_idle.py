"""What a job costs whose topics have been idle for a minute, in processor time: % of one core.

The reference is the same broker with nobody at all, and with one plain consumer that waits for records.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition
from harness import ResultRow, add_settings, configured, parse, report
from stage import cpu_seconds, whole_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane_local.stack.stack import Stack

TOPIC, PARTITIONS = "idle", 9
CONFIG = f"[topics.{TOPIC}]\npartitions = {PARTITIONS}\n"
MORE = "broker, more than with nobody"
SETTLE_S = 5.0
JOB, CONSUMER, NOBODY = "the job", "a plain consumer", "nobody"


def shares(stack: Stack, settle_s: float, seconds: float) -> dict[str, float]:
    """Return what each part computes while nothing happens, in % of one core."""
    time.sleep(settle_s)
    before, began_s = cpu_seconds(stack), time.monotonic()
    time.sleep(seconds)
    after, took_s = cpu_seconds(stack), time.monotonic() - began_s
    return {part: (after[part] - before[part]) / took_s * 100 for part in after}


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--settle-s", type=float, default=100, help="from the job's start")
    options.add_argument("--seconds", type=float, default=30, help="of each measurement")
    add_settings(options)
    chosen = parse(options, arguments)
    with whole_stack(configured(CONFIG, chosen)) as stack:
        job = shares(stack, chosen.settle_s, chosen.seconds)
        stack.job.stop()
        consumer = Consumer({"bootstrap.servers": stack.kafka_bootstrap, "group.id": "bench"})
        consumer.assign([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        consumer.poll(1)
        waiting = shares(stack, SETTLE_S, chosen.seconds)
        consumer.close()
        alone = shares(stack, SETTLE_S, chosen.seconds)
    rows = [
        ResultRow(
            title,
            own | {"broker": found["Kafka"], MORE: found["Kafka"] - alone["Kafka"], "Redis": found["Redis"]},
        )
        for title, found, own in (
            (JOB, job, {"job": job["JVM"] + job["Python"]}),
            (CONSUMER, waiting, {}),
            (NOBODY, alone, {}),
        )
    ]
    report(
        "idle",
        "% of one core",
        rows,
        reference=NOBODY,
        settings=vars(chosen),
        aim="at most 5 % for the job and 2 % more for the broker",
    )


if __name__ == "__main__":
    main()
