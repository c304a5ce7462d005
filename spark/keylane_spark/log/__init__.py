"""What is read: the log of Kafka's partitions."""
