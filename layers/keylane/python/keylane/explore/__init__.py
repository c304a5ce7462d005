"""Looking into Kafka itself: clusters, topics, partitions, offsets, raw records; and health."""
