"""Sizes and list prices of AWS, and what else is counted at rest.

US dollars, us-east-1, on demand, November 2026, from AWS's pricing pages as we know them: no price was asked
of AWS's price list service. Check those that matter to you.
"""

HOURS_A_MONTH = 730
SECONDS_A_MONTH = HOURS_A_MONTH * 3600

CACHE_NODES = {
    "cache.t4g.micro": (0.5, 0.0128),
    "cache.t4g.small": (1.37, 0.0256),
    "cache.t4g.medium": (3.09, 0.052),
    "cache.r7g.large": (13.07, 0.1752),
    "cache.r7g.xlarge": (26.32, 0.3496),
    "cache.r7g.2xlarge": (52.82, 0.6984),
    "cache.r7g.4xlarge": (105.81, 1.3968),
    "cache.r7g.8xlarge": (209.55, 2.7928),
    "cache.r7g.16xlarge": (419.09, 5.5856),
}
"""ElastiCache for Valkey: GiB and price of an hour."""
BROKERS = {
    "kafka.t3.small": 0.0456,
    "kafka.m7g.large": 0.204,
    "kafka.m7g.xlarge": 0.408,
    "kafka.m7g.2xlarge": 0.816,
    "kafka.m7g.4xlarge": 1.632,
    "kafka.m7g.8xlarge": 3.264,
    "kafka.m7g.12xlarge": 4.896,
    "kafka.m7g.16xlarge": 6.528,
}
"""Amazon MSK, provisioned: price of an hour."""
BROKER_DISKS = {
    "kafka.m7g.large": 78.75,
    "kafka.m7g.xlarge": 156.25,
    "kafka.m7g.2xlarge": 250,
}
"""MB/s that a broker writes to its disk: what EC2 has to EBS at all times, and what a volume of MSK has.

A volume has 250 MiB/s, unless more is provisioned: AWS's "Manage storage throughput for Standard brokers".
"""
CORES = {
    "Fargate": (0.04048, 0.004445),
    "Fargate, arm64": (0.03238, 0.00356),
    "EMR Serverless": (0.052624, 0.0057785),
    "EC2": (0.0408, 0.0),
}
"""Price of an hour of a core, and of a GiB. EC2: of an m7g, whose cores have 4 GiB each."""
BY_THE_HOUR = {
    "an interface endpoint in a zone": 0.01,
    "a NAT gateway": 0.045,
    "an Application Load Balancer": 0.0225,
    "a unit of its load (LCU)": 0.008,
    "a cluster of MSK Serverless": 0.75,
    "a partition of MSK Serverless": 0.0015,
    "a GB of provisioned concurrency": 0.0000041667 * 3600,
    "a cluster of EKS": 0.10,
}
BY_THE_MONTH = {
    "a GB of a broker's disk": 0.10,
    "a key of KMS": 1.00,
    "a secret": 0.40,
    "an alarm's metric": 0.10,
    "a dashboard": 3.00,
    "a metric": 0.30,
    "a GB of logs": 0.50,
}
BY_USE = {
    "a GB from Kafka in another zone": 0.02,
    "a GB to a cache node in another zone": 0.01,
}
"""Traffic between zones costs 0.01 at each end; that of a cache node is free at its own."""
MORE = float("inf")
TIERS: dict[str, tuple[tuple[float, float], ...]] = {
    "a million requests of a REST API": ((333, 3.50), (667, 2.80), (19_000, 2.38), (MORE, 1.51)),
    "a million requests of an HTTP API": ((300, 1.00), (MORE, 0.90)),
    "a million requests of Lambda": ((MORE, 0.20),),
    "a million GB-seconds of Lambda": ((6_000, 16.6667), (9_000, 15.0), (MORE, 13.3334)),
    "a GB of logs of requests": ((10_000, 0.50), (20_000, 0.25), (20_000, 0.10), (MORE, 0.05)),
}
"""What is dearer at first: how many a month, and the price of one. Logs: of services of AWS."""


def tiered(kind: str, count: float) -> float:
    """Return what so many of a kind cost in a month."""
    dollars, left = 0.0, count
    for size, price in TIERS[kind]:
        dollars += min(left, size) * price
        left -= min(left, size)
    return dollars


# Assumed: what is there of a kind although no template says how many.
PARTITIONS_AT_REST = 9
"""Partitions of Kafka: one topic."""
BROKER_METRICS = 45
"""Metrics that MSK adds for each broker at the level PER_BROKER. Those of DEFAULT are free."""
BROKER_LOG_GB = 0.5
"""Logs of a broker that has nothing to do."""
CLUSTER_METRICS = 25
"""Metrics of Container Insights for a cluster of ECS with one service and its task."""
