"""Redis Cluster: connections, routing, replicas, scripts, and the ports that they serve."""
