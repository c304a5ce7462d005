"""The settings of Kafka's clients. A cluster of KEYLANE_KAFKA_CLUSTERS has fields of the same names."""

from keylane.adapters.kafka import options as kafka
from keylane.config.settings import (
    REQUIRED,
    Addresses,
    Choice,
    Integer,
    JsonObject,
    Raw,
    Setting,
    SettingsTable,
    Switch,
)

PREFIX = "KEYLANE_KAFKA_"
MOST = 2_147_483_647
HOUR_MS = 3_600_000
_ALL, _WRITERS = "produce, drain, explore, job", "produce, drain"

BOOTSTRAP = SettingsTable(
    Addresses("KEYLANE_KAFKA_BOOTSTRAP", "Brokers of the cluster.", REQUIRED), parts=_ALL
)

SECURITY = SettingsTable(
    Choice(
        "KEYLANE_KAFKA_SECURITY_PROTOCOL",
        "Whether connections are encrypted (SSL), and whether the client gives credentials (SASL).",
        "",
        words=kafka.PROTOCOLS,
        shown="`SASL_SSL` with a mechanism, else `PLAINTEXT`",
    ),
    Choice(
        "KEYLANE_KAFKA_SASL_MECHANISM",
        "How the client authenticates. `AWS_MSK_IAM`: OAUTHBEARER with tokens that the role signs.",
        "",
        words=kafka.MECHANISMS,
    ),
    Setting("KEYLANE_KAFKA_SASL_USERNAME", "The user, for all mechanisms but `AWS_MSK_IAM`.", ""),
    Raw("KEYLANE_KAFKA_SASL_PASSWORD", "The password. Spaces around it are part of it.", ""),
    Setting(
        "KEYLANE_KAFKA_SASL_REGION", "The region of the cluster, for `AWS_MSK_IAM`.", "", shown="`AWS_REGION`"
    ),
    Setting(
        "KEYLANE_KAFKA_SSL_CA",
        "The certificates of the authorities to trust: the path of a PEM file, or its text.",
        "",
        shown="the system's authorities",
    ),
    Setting("KEYLANE_KAFKA_SSL_CERTIFICATE", "The client's own certificate: PEM, path or text.", ""),
    Setting("KEYLANE_KAFKA_SSL_KEY", "Its private key: PEM, path or text. PKCS #8 for the job.", ""),
    Raw("KEYLANE_KAFKA_SSL_KEY_PASSWORD", "The password of an encrypted private key.", ""),
    Choice(
        "KEYLANE_KAFKA_SSL_VERIFY",
        "What is checked of a broker's certificate: authority and host name, the authority alone, or "
        "nothing. The job refuses `none`.",
        kafka.FULL,
        words=kafka.VERIFY,
    ),
    parts=_ALL,
)

CLUSTERS = SettingsTable(
    JsonObject(
        "KEYLANE_KAFKA_CLUSTERS",
        "Further clusters, each with its topics: see [Several clusters](#several-clusters).",
        '{"payments": {"topics": ["payments.*"], "bootstrap": "one:9092"}}',
    ),
    parts=_ALL,
)

CLIENT = SettingsTable(
    Setting(
        "KEYLANE_KAFKA_CLIENT_ID",
        "The client's name in quotas and logs of brokers.",
        shown="`keylane-produce`, `keylane-explore`",
    ),
    Setting(
        "KEYLANE_KAFKA_CLIENT_RACK",
        "The rack or availability zone of the function: raw records are read from a replica there, if the "
        "brokers have a replica selector. Such a replica may be behind its leader.",
        parts="explore",
        shown="none: from the leader",
    ),
    Integer(
        "KEYLANE_KAFKA_SOCKET_TIMEOUT_MS",
        "How long a request to a broker waits for its response. Then the connection counts as dead.",
        bounds=(10, 300_000),
        shown="half of a request's time, at least 2000",
    ),
    Integer(
        "KEYLANE_KAFKA_CONNECT_TIMEOUT_MS",
        "The longest time to connect. A request usually fails by its own timeout before.",
        bounds=(1_000, MOST),
        shown="30000, librdkafka's",
    ),
    Integer(
        "KEYLANE_KAFKA_IDLE_TIMEOUT_MS",
        "When idle connections are closed; 0: never. Brokers close them after 10 minutes by default.",
        bounds=(0, MOST),
        shown="0",
    ),
    Integer(
        "KEYLANE_KAFKA_METADATA_REFRESH_MS",
        "How often the number of partitions is read. Until then a grown topic has the old number here.",
        bounds=(10, HOUR_MS),
        shown="10000; explore: 300000",
    ),
    Integer(
        "KEYLANE_KAFKA_RETRY_BACKOFF_MS",
        "The first pause before a retry. It is short: a new leader is often elected within milliseconds.",
        bounds=(1, 300_000),
        shown="20",
    ),
    Integer(
        "KEYLANE_KAFKA_RETRY_BACKOFF_MAX_MS",
        "The longest pause before a retry.",
        bounds=(1, 300_000),
        shown="1000, or the first pause where that is longer",
    ),
    parts=_ALL,
)

PRODUCER = SettingsTable(
    Choice(
        "KEYLANE_KAFKA_ACKS",
        "Which replicas must have a record before it counts as written; `-1` means `all`. 0 is refused: "
        "without an acknowledgement no position is known.",
        "all",
        words=("all", "-1", "1"),
    ),
    Switch(
        "KEYLANE_KAFKA_IDEMPOTENCE",
        "With it a retry never writes twice, and never out of order. `true` needs `all` and retries. The "
        "first write of a cold function takes about 15 ms longer.",
        shown="`true` with `all` and retries",
    ),
    Integer(
        "KEYLANE_KAFKA_RETRIES",
        "How often a record is sent again.",
        bounds=(0, MOST),
        shown="until the time is over",
    ),
    Integer(
        "KEYLANE_KAFKA_LINGER_MS",
        "How long records gather in a batch. When a request has handed over all, they go at once.",
        5,
        bounds=(0, 900_000),
    ),
    Integer(
        "KEYLANE_KAFKA_BATCH_RECORDS",
        "The most records of a batch.",
        bounds=(1, 1_000_000),
        shown="10000, librdkafka's",
    ),
    Integer(
        "KEYLANE_KAFKA_BATCH_BYTES",
        "The most bytes of a batch.",
        bounds=(1, MOST),
        shown="1000000, librdkafka's",
    ),
    Integer(
        "KEYLANE_KAFKA_QUEUE_RECORDS",
        "The most records in the client's queue.",
        bounds=(1, MOST),
        shown="100000, librdkafka's",
    ),
    Integer(
        "KEYLANE_KAFKA_QUEUE_KBYTES",
        "The most kilobytes in the client's queue; a request has 6 MB at most.",
        bounds=(1, MOST),
        shown="1048576, librdkafka's",
    ),
    Choice(
        "KEYLANE_KAFKA_QUEUE_FULL",
        "Whether a record that finds the queue full waits for room while its request has time, or fails.",
        kafka.WAIT,
        words=(kafka.WAIT, kafka.ERROR),
    ),
    Integer(
        "KEYLANE_KAFKA_MESSAGE_TIMEOUT_MS",
        "After this time a record without an acknowledgement fails. It must exceed the linger.",
        bounds=(1, HOUR_MS),
        shown="the request's time",
    ),
    Integer(
        "KEYLANE_KAFKA_REQUEST_TIMEOUT_MS",
        "How long a broker may wait for its replicas.",
        bounds=(1, 900_000),
        shown="the request's time",
    ),
    Choice(
        "KEYLANE_KAFKA_COMPRESSION",
        "How batches are compressed. Good for large requests; a single record gains little.",
        "none",
        words=kafka.COMPRESSIONS,
    ),
    parts=_WRITERS,
)

PARTITIONING = SettingsTable(
    Choice(
        "KEYLANE_PARTITIONER",
        "Which partition a key goes to. `murmur2` is that of Java's clients.",
        "murmur2",
        words=tuple(kafka.BUILT_IN),
    ),
    JsonObject(
        "KEYLANE_PARTITIONERS",
        "Other partitioners by topic: see [Partitioners](#partitioners).",
        '{"clicks": "round_robin"}',
    ),
    JsonObject(
        "KEYLANE_PARTITION_BY",
        "Topics that are partitioned by a prefix of the key, as `partition_by` in `keylane.toml`.",
        '{"bookings": "prefix:|"}',
    ),
    parts=_WRITERS,
)
