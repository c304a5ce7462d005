"""Redis for many requests: connections and layouts that they share."""
