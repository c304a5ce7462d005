"""Writes: to Kafka or to the write-ahead log, within rate limits and schemas."""
