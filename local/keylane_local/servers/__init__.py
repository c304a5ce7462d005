"""The servers of the local stack: Kafka, Redis Cluster, LocalStack."""
