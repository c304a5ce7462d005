"""The job's own table in `keylane.toml`: docs/configuration/topics.md says what each option does."""

from typing import Annotated, Literal

from pydantic import Field

from keylane_spark.config.table import ConfigTable

MOST = 2**63 - 1
"""Of a number in TOML and in Java; Python reads longer ones."""


class JobConfig(ConfigTable):
    """The table `[job]` of keylane.toml: settings of the writer; the defaults suit a laptop and a cluster."""

    small_batch_records: Annotated[int, Field(ge=0, le=MOST)] = 20_000
    """Batches of up to this size are written by the driver (lowest latency), larger ones by executors."""
    reader: Literal["direct", "spark"] = "direct"
    """Who reads the records from Kafka: the driver and the tasks themselves, or Spark's JVM."""
    max_batch_records: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """The most of one batch; None: as many as the tasks that run at once write in about a second."""
    fetch_max_wait_ms: Annotated[int, Field(ge=1, le=60_000)] = 5
    """Kafka's fetch.max.wait.ms. With Kafka's default of 500 every batch waits for half a second."""
    idle_poll_ms: Annotated[int, Field(ge=1, le=10_000)] = 50
    """How often Kafka is asked for new records once there were none for a minute; every 10 ms before.

    At least half a millisecond for each partition: the ends of all of them are asked for."""
    heartbeat_ms: Annotated[int, Field(ge=50, le=60_000)] = 500
    redis_patience_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    """The retry budget of writes to Redis, longer than a failover; once it is spent, lanes are parked."""
    wait_replicas: Annotated[int, Field(ge=0, le=5)] = 0
    """How many replicas must have a batch before it counts as written (Redis' WAIT)."""
    wait_timeout_ms: Annotated[int, Field(ge=1, le=60_000)] = 1000
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    sweep_keys_per_s: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """The most at which unused generations are removed from Redis; None: as fast as Redis bears."""
    create_topics: bool = False
    """Whether a start creates the topics that Kafka does not have."""
    forget_topics: Annotated[tuple[str, ...], Field(strict=False)] = ()
    forget_views: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Topics and views that are no longer in the config, and whose state is removed from Redis."""
    metrics: Literal["none", "emf", "openmetrics"] = "none"
    """"emf": print metrics for CloudWatch every ten seconds; "openmetrics": serve them for Prometheus."""
    metrics_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    metrics_port: Annotated[int, Field(ge=1, le=65535)] = 9464
