"""Formats of values: JSON text, Avro, Confluent's wire format, projection."""
