"""The Spark session, its Kafka options, and the archive of its classes."""
