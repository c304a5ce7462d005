"""The write-ahead log into Kafka."""
