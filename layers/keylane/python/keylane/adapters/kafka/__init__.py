"""Kafka: librdkafka's clients behind the ports."""
