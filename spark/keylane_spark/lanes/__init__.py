"""What is written: the lanes in Redis Cluster, and the function library that guards them."""
