"""Kafka for many requests: one producer that they share."""
