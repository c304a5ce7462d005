"""Kafka's own view: clusters, topics, partitions, offsets, raw records."""
