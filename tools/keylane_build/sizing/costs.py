"""What records, lanes, reads and keys cost, and what is assumed of the rest: all the figures.

One place to change them after a measurement. Those of a key's memory are in `key_memory`, for `keylane check`
counts with them, too. `MEASURED` and `ASSUMED` are a table of docs/operate/sizing.md.
"""

from keylane_cli.survey import key_memory

# Measured on 2 cores with one broker and three primaries: backlogs of 1 and 1.5 million records of 14 + 170
# bytes in topics of 9 x 1, 100 x 1, 1,000 x 1 and 1,000 x 4 lanes; and by the benchmarks.
WORKER_US_PER_RECORD = 1.3
WORKER_MS_PER_LANE = 0.7
"""Of each lane that a batch writes: two round trips to Redis, and its share of what the driver does."""
JVM_US_PER_RECORD = 0.3
REDIS_US_PER_WRITE = 2.2
HEARTBEAT_US_PER_LANE = 8.0
SERVER_MS = 0.17

# Assumed.
BATCHES_PER_S = 1.0
HEARTBEATS_PER_S = 2.0
REDIS_US_PER_READ = 8.0
MAX_LOAD = 0.5
"""Of a core or a disk: the rest keeps reads fast during failovers, and catches up after a stop."""
TASK_RECORDS = 250_000
"""Of a batch, by default, for each task that runs at once: about a second of work."""
PARTITION_RECORDS_PER_S = 50_000
FUNCTION_MS = 3.0
REQUEST_LOG_BYTES = 1_000
DISK_USED = 0.6

MEASURED = (
    ("a worker's CPU of a record", WORKER_US_PER_RECORD, "µs", "1.32 with 9 lanes"),
    ("a worker's CPU of a lane in a batch", WORKER_MS_PER_LANE, "ms", "from 1.25 and 2.12 µs a record"),
    ("Spark's JVM, CPU of a record", JVM_US_PER_RECORD, "µs", "0.26, [ingest](../benchmarks.md#ingest)"),
    ("a primary's CPU of a record", REDIS_US_PER_WRITE, "µs", "2.16 with 9 lanes, 1.43 with 1,000"),
    ("the driver's CPU of a lane in a heartbeat", HEARTBEAT_US_PER_LANE, "µs", "8.2 ms with 1,000 lanes"),
    ("the standing server's CPU of a request", SERVER_MS, "ms", "a push of 4 KiB; a lookup takes 0.11"),
    ("memory of a key, without name and value", key_memory.BYTES_PER_KEY, "bytes", "see above"),
    (
        "memory of a field's value in its index, without key and twice the value",
        key_memory.BYTES_PER_ENTRY,
        "bytes",
        "[find](../benchmarks.md#finds)",
    ),
    ("a key in a serialized index, besides the key", key_memory.INDEX_ENTRY_BYTES, "bytes", "see above"),
)
"""What, how much, of which unit, and by which measurement."""
ASSUMED = (
    ("batches of large ones", BATCHES_PER_S, "a second", "what the tasks that run at once write in a second"),
    ("records of a task in a batch", TASK_RECORDS, "", "`max_batch_records`, its default"),
    ("heartbeats", HEARTBEATS_PER_S, "a second", "`heartbeat_ms`, its default"),
    ("a primary's CPU of a read key", REDIS_US_PER_READ, "µs", "`MGET` of a value and its watermark"),
    ("load of a core or a disk", MAX_LOAD, "", "the rest is for failovers, and to catch up"),
    ("records of a partition", PARTITION_RECORDS_PER_S, "a second", "a fifth of what a core can do"),
    ("a request in a warm function", FUNCTION_MS, "ms", "Redis 1 ms, Lambda the rest"),
    ("logs of a request", REQUEST_LOG_BYTES, "bytes", "a line of the access log, and two of Lambda"),
    ("a part of an index, serialized", key_memory.INDEX_PART_MB, "MB", "a quarter of what ElastiCache moves"),
    (
        "memory of a node that may be used",
        key_memory.MEMORY_USED,
        "",
        "the rest is for replication and failovers",
    ),
    ("a broker's disk that may be used", DISK_USED, "", "MSK enlarges volumes above that"),
    ("a topic in memory, times", key_memory.REBUILD, "", "a change of layout builds the topic beside itself"),
)
