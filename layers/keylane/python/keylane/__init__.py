"""Keylane: Kafka topics queryable over HTTPS, serverless."""

__version__ = "0.1.0"
