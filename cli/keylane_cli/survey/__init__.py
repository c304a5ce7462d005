"""What a Kafka and a Redis Cluster hold, as far as commands have to know it. Nothing here writes to them."""
