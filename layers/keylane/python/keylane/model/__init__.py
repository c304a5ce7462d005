"""Plain values: records, clusters, keys, patterns, rules. They import nothing of Keylane's but errors."""
