"""The only importers of client libraries: Redis, Kafka, SQS."""
