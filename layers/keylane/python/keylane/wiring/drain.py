"""What the drain function works with."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.config.functions import ProduceSettings
from keylane.ports import Clock
from keylane.wiring.buckets import bucket_of
from keylane.wiring.log import log_of
from keylane.wiring.metrics import check_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.config.queue import DrainSettings
    from keylane.metrics.meter import Meter
    from keylane.ports import Bucket, Log, Queue


DRAIN_PATIENCE = 2
"""So many times the deadline of a batch is librdkafka's own of a record."""


@dataclass(frozen=True, slots=True)
class Drain:
    """What the drain function works with; `bucket` is None where none is set."""

    settings: DrainSettings
    clock: Clock
    log: Log
    dead_letters: Queue
    bucket: Bucket | None


def drain_maker(meter: Meter) -> Callable[[], Drain]:
    """Give the maker of the drain function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.aws.sqs import SqsQueue  # noqa: PLC0415
    from keylane.adapters.kafka.producer import KafkaProducer  # noqa: F401, PLC0415
    from keylane.config.queue import drain_settings  # noqa: PLC0415

    @cache
    def make() -> Drain:
        check_metrics()
        environment = references.resolved(os.environ)
        settings = drain_settings(environment)

        def patient(kafka: KafkaSettings) -> KafkaSettings:
            """No record times out by itself while a later one of its key is written: a deadline ends all."""
            options = replace(kafka.producer, message_timeout_ms=None, retries=None)
            return replace(kafka, timeout_ms=DRAIN_PATIENCE * settings.timeout_ms, producer=options)

        log = log_of(ProduceSettings.from_environment(environment), meter, patient)
        dead_letters = SqsQueue(settings.dead_letters_url, settings.limit_bytes, settings.aws)
        meter.count("ColdStarts", 1, "drain")
        return Drain(settings, Clock(), log, dead_letters, bucket_of(settings.bucket, settings.aws))

    return make
