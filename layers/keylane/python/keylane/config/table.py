"""The settings of functions, job, local stack and build; those of Kafka are in `kafka_table`."""

from keylane.config.settings import (
    REQUIRED,
    Addresses,
    ExactChoice,
    Integer,
    JsonObject,
    JsonOrFile,
    Pattern,
    Raw,
    Setting,
    SettingsTable,
    Switch,
)

_QUEUE = ("an http or https URL of host and path alone", r"https?://[^/@?#\s]+(/[^/@?#\s]+)+")
_BUCKET = ("the name of an S3 bucket", r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_WRITERS = "produce, drain"
_REDIS = "query, explore, produce, job"
_REGISTRY = "query, produce, explore"
_REGISTRY_OF_JOB = f"{_REGISTRY}, job"
_MONTH_S = 30 * 86_400
LARGEST_VALUE_BYTES = 512 * 1024 * 1024
"""No function and no broker takes more: the bound catches a typing error."""
LEAST_MESSAGE_BYTES, SAFE_MESSAGE_BYTES, MOST_MESSAGE_BYTES = 4_096, 262_144, 1_048_576
"""Of a message, and of a batch of them. SQS takes 1 MiB since August 2025, stand-ins often less."""

REDIS = SettingsTable(
    Addresses(
        "KEYLANE_REDIS_NODES",
        "Some nodes of the cluster, from which the others are found. explore and produce do not require it.",
        REQUIRED,
    ),
    Raw("KEYLANE_REDIS_USERNAME", "The user. Spaces around it are part of it."),
    Raw("KEYLANE_REDIS_PASSWORD", "The password. Spaces around it are part of it."),
    Switch("KEYLANE_REDIS_TLS", "Whether connections are encrypted.", False),
    Raw(
        "KEYLANE_REDIS_TLS_CA_FILE",
        "A PEM file with the certificates of the authorities to trust.",
        shown="the system's authorities",
    ),
    parts=_REDIS,
)

API = SettingsTable(
    JsonObject(
        "KEYLANE_TOPICS",
        "Patterns of the topics that may be read and written: see [Topics](#topics).",
        '{"read": ["orders*", "customers"], "write": ["orders*"]}',
        shown="all but internal topics",
    ),
    Pattern(
        "KEYLANE_USER_POOL",
        "The ARN of the user pool with which API Gateway verifies tokens: the rules of `KEYLANE_ACCESS` then "
        "apply to their claims. For functions behind such an API alone.",
        "",
        form=(
            "the ARN of a user pool of Cognito",
            r"arn:aws[a-z-]*:cognito-idp:[a-z0-9-]+:[0-9]{12}:userpool/[a-z0-9-]+_[A-Za-z0-9]+",
        ),
    ),
    Pattern(
        "KEYLANE_BASE_PATH",
        "The base path of a custom domain, which API Gateway leaves in the path.",
        "",
        parts="query, explore, produce, authorizer",
        form=("a path like /kafka, without a slash at the end", r"(/[A-Za-z0-9._~-]+)+"),
    ),
    Pattern(
        "KEYLANE_CORS_ORIGIN",
        "The origin whose pages may call the API from a browser: a header of every answer. * for all.",
        "",
        form=("* or an origin like https://app.example.org", r"\*|https?://[A-Za-z0-9.-]+(:\d+)?"),
    ),
    Switch(
        "KEYLANE_MCP_WRITES",
        "Whether agents may write: the tool `put` of [`/mcp`](../http/mcp.md), on `keylane serve` alone.",
        False,
        parts="query",
    ),
    ExactChoice(
        "KEYLANE_REST_COMPATIBILITY",
        "`rest-proxy`: its documents and media types for clients that ask for no others; `karapace`: "
        "also Karapace's codes. See [REST Proxy](../migrate/rest-proxy.md#without-changes-to-clients).",
        "",
        parts="explore, produce",
        words=("rest-proxy", "karapace"),
        shown="none",
    ),
    parts="query, explore, produce",
)

READS = SettingsTable(
    Integer(
        "KEYLANE_STATE_TIMEOUT_MS", "The longest time of one read.", 1_000, parts="query, explore, produce"
    ),
    Integer(
        "KEYLANE_WAIT_DEFAULT_MS",
        "How long a read waits for a position, where the request does not say. Never more than the maximum.",
        5_000,
        bounds=(0, None),
    ),
    Integer("KEYLANE_WAIT_MAX_MS", "The longest wait that a request gets.", 20_000, bounds=(0, None)),
    Integer(
        "KEYLANE_LAYOUT_TTL_S",
        "How long the layout of a topic is used before it is read again.",
        30,
        parts="query, produce",
        bounds=(0, None),
    ),
    Integer(
        "KEYLANE_EXPLORE_TIMEOUT_MS", "The longest time that one request asks Kafka.", 5_000, parts="explore"
    ),
    Integer("KEYLANE_HEALTH_TIMEOUT_MS", "The same for `/health`, for each cluster.", 2_000, parts="explore"),
    Switch("KEYLANE_METRICS", "Whether functions write metrics to their logs.", True, parts="all functions"),
    Pattern(
        "KEYLANE_METRICS_NAMESPACE",
        "The namespace of metrics in CloudWatch. `template.yaml` sets one for each stack.",
        "Keylane",
        parts="all functions, job",
        form=("a namespace of CloudWatch", r"[A-Za-z0-9_./#-]{1,255}"),
    ),
    parts="query",
)

REGISTRY = SettingsTable(
    Setting(
        "KEYLANE_SCHEMA_REGISTRY_URL",
        "Where Confluent's API begins. Needed for values in a registry's format. No credentials in it.",
        parts=_REGISTRY_OF_JOB,
    ),
    Raw("KEYLANE_SCHEMA_REGISTRY_USERNAME", "The user.", parts=_REGISTRY_OF_JOB),
    Raw("KEYLANE_SCHEMA_REGISTRY_PASSWORD", "The password.", parts=_REGISTRY_OF_JOB),
    Raw(
        "KEYLANE_SCHEMA_REGISTRY_CA_FILE",
        "A PEM file with the certificates of the authorities to trust.",
        shown="the system's authorities",
        parts=_REGISTRY_OF_JOB,
    ),
    Integer(
        "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS",
        "The longest time that one request waits for it, however many schemas it names.",
        2_000,
    ),
    parts=_REGISTRY,
)

WRITES = SettingsTable(
    Integer("KEYLANE_PRODUCE_TIMEOUT_MS", "The longest time of one request.", 5_000, parts="produce, drain"),
    Integer(
        "KEYLANE_MAX_VALUE_BYTES",
        "The largest value, without its key. Key and batch have another 128 KiB.",
        1_048_576,
        parts=_WRITERS,
        bounds=(1, LARGEST_VALUE_BYTES),
    ),
    Pattern(
        "KEYLANE_REQUEST_ID_HEADER",
        "A header that every record gets, with the id of the request that wrote it: that of the access log.",
        form=("a header's name of letters, digits, dot, dash and underscore", r"[A-Za-z0-9._-]{1,100}"),
    ),
    Switch(
        "KEYLANE_TRACE_HEADERS",
        "Whether records get the headers `traceparent` and `tracestate` of the request that wrote them.",
        True,
    ),
    ExactChoice(
        "KEYLANE_PUSH_COMPATIBILITY",
        "`kprf`: a push of which a record failed is 500, as in kprf, and a rate-limited record's message is "
        "`ratelimit`. Clients that repeat a push after 500 then write its other records twice.",
        "",
        words=("kprf",),
        shown="none",
    ),
    JsonObject(
        "KEYLANE_SCHEMAS",
        "Schemas by which values are validated: see [Schemas](#schemas).",
        '{"orders*": {"file": "schemas/orders.json"}, "*": {"subject": "{topic}-value"}}',
    ),
    parts="produce",
)

LOG = SettingsTable(
    Pattern(
        "KEYLANE_QUEUE_URL",
        "The SQS queue. It is FIFO if its name ends with `.fifo`. drain needs it for pauses that grow.",
        form=_QUEUE,
    ),
    ExactChoice(
        "KEYLANE_ASYNC",
        "Where asynchronous writes go: into the queue, or to Kafka while the client waits.",
        "",
        parts="produce",
        words=("queue", "deliver"),
        shown="`queue` where a queue is set",
    ),
    Switch(
        "KEYLANE_QUEUE_ON_FAILURE",
        "Whether records that Kafka did not acknowledge go into the queue.",
        False,
        parts="produce",
    ),
    Integer(
        "KEYLANE_QUEUE_GROUPS",
        "The order groups of a topic in a FIFO queue.",
        16,
        parts="produce",
        bounds=(1, 10_000),
    ),
    Integer(
        "KEYLANE_QUEUE_LIMIT_BYTES",
        "The largest message.",
        SAFE_MESSAGE_BYTES,
        bounds=(LEAST_MESSAGE_BYTES, MOST_MESSAGE_BYTES),
    ),
    Pattern("KEYLANE_QUEUE_BUCKET", "A bucket for records that no message can hold.", form=_BUCKET),
    Pattern("KEYLANE_DLQ_URL", "The queue of dead letters.", REQUIRED, parts="drain", form=_QUEUE),
    Integer(
        "KEYLANE_DRAIN_TIMEOUT_MS",
        "The longest time of one batch.",
        20_000,
        parts="drain",
        bounds=(1, 840_000),
    ),
    parts=_WRITERS,
)

GUARDS = SettingsTable(
    JsonObject(
        "KEYLANE_RATE_LIMITS",
        "Rates of topics and callers: see [Rate limits](#rate-limits). Needs `KEYLANE_REDIS_NODES`.",
        '{"topics": {"a*": {"records_per_minute": 600}}, "callers": {"*": {"bytes_per_minute": 9000}}}',
    ),
    Integer(
        "KEYLANE_RATE_LIMIT_TIMEOUT_MS",
        "The longest time that counting adds to a write; 500 for the first one. A Redis node that failed is "
        "skipped for a second.",
        50,
    ),
    ExactChoice(
        "KEYLANE_RATE_LIMIT_FAILURE",
        "What happens to a request that cannot be counted: `open` admits it, `closed` answers 503.",
        "open",
        words=("open", "closed"),
    ),
    Setting(
        "KEYLANE_CALLER",
        "How callers are identified, by the first that is known: principal or `sub`, ARN, id of the API key, "
        "address. `X-Forwarded-For` is never used.",
        "",
        shown="`authorizer,iam,api-key,source-ip`",
    ),
    Integer(
        "KEYLANE_IDEMPOTENCY_EXPIRY_S",
        "How long a response is kept for its `Idempotency-Key`. Needs `KEYLANE_REDIS_NODES`.",
        86_400,
        bounds=(1, _MONTH_S),
    ),
    Integer(
        "KEYLANE_IDEMPOTENCY_IN_PROGRESS_S",
        "After this time a request without a response counts as failed. At least the function's timeout, and "
        "more than the timeouts of Kafka, registry and state together.",
        30,
        bounds=(1, 900),
    ),
    parts="produce",
)

ACCESS = SettingsTable(
    JsonOrFile(
        "KEYLANE_ACCESS",
        "Tokens by their SHA-256, and what each grants; issuers of JWTs, and rules for them. Read again each "
        "minute, so best a reference, or `file:PATH` of a JSON or TOML file: see [rights](../use/rights.md).",
        '{"SHA-256 of a token": {"name": "billing", "read": ["orders*"], "write": ["invoices"]}}',
        REQUIRED,
    ),
    JsonObject(
        "KEYLANE_LOGIN",
        "The issuer with which people log in to the console and by `keylane login`: see "
        "[login](../operate/serve.md#login-of-people).",
        '{"issuer": "https://id.example.com/", "client_id": "keylane"}',
        parts="`keylane serve`",
    ),
    Switch(
        "KEYLANE_ACCESS_AUDIT",
        "Whether each decision on a request is logged: the caller, the rules, the topics and the result.",
        False,
    ),
    parts="authorizer, query, explore, produce",
)

JOB_AND_BUILD = SettingsTable(
    Switch(
        "KEYLANE_CREATE_TOPICS",
        "Whether the job creates topics that Kafka does not have, whatever `keylane.toml` says.",
        False,
        shown="`create_topics` of `[job]`",
    ),
    ExactChoice(
        "KEYLANE_JOB_METRICS",
        "Whether the job prints metrics for CloudWatch (`emf`) or serves them for Prometheus "
        "(`openmetrics`), whatever `keylane.toml` says.",
        "",
        words=("none", "emf", "openmetrics"),
        shown="`metrics` of `[job]`",
    ),
    Integer(
        "KEYLANE_JOB_METRICS_PORT",
        "The port at which the job serves its metrics for Prometheus, whatever `keylane.toml` says.",
        bounds=(1, 65_535),
        shown="`metrics_port` of `[job]`",
    ),
    Integer(
        "KEYLANE_FENCED_WAIT_S",
        "How long a job that another one has replaced waits for SIGTERM before it ends. Without a wait, what "
        "starts it again, as ECS, takes the topics back.",
        0,
        bounds=(0, _MONTH_S),
    ),
    Raw(
        "KEYLANE_CHECKPOINT",
        "The folder of Spark's offset log, on the driver's own disk.",
        shown="a temporary folder",
    ),
    Raw("KEYLANE_JARS", "The folder with the jars of the Kafka connector.", shown="the deployment's"),
    Raw("KEYLANE_DATA", "The folder of the local stack's data.", ".keylane", parts="`keylane`"),
    Raw("KEYLANE_URL", "The API that commands talk to.", parts="`keylane`", shown="the local stack's"),
    Raw("KEYLANE_API_KEY", "The API key of its requests.", parts="`keylane`"),
    Raw("KEYLANE_AUTHORIZATION", "The header `Authorization` of its requests.", parts="`keylane`"),
    Raw(
        "KEYLANE_TOOLS",
        "The folder of the servers and jars that it fetches.",
        ".keylane-tools",
        parts="set-up",
    ),
    Raw("KEYLANE_IVY_SETTINGS", "An Ivy settings file, to fetch jars from a mirror.", parts="set-up"),
    Raw("KEYLANE_ARCHITECTURE", "`x86_64` or `arm64`.", "x86_64", parts="build of the layer"),
    Raw("KEYLANE_RUNTIME", "The runtime of the functions.", "python3.13", parts="build of the layer"),
    parts="job",
)

SETTINGS = SettingsTable(
    *(
        setting
        for table in (API, REDIS, READS, REGISTRY, WRITES, LOG, GUARDS, ACCESS, JOB_AND_BUILD)
        for setting in table.values()
    )
)
"""All of this module."""
