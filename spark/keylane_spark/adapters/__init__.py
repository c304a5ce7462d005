"""The writer's half of Redis, and the Kafka admin client of the job."""
