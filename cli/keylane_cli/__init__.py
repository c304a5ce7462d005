"""The commands that the project adds to `keylane`, the program of its Python client."""

COMMANDS = {
    "up": (".stack:up", "Start the stack, or those of its parts that are down."),
    "deploy": (
        ".stack:deploy",
        "Deploy template.yaml, or its changes, to the stack's LocalStack, and print the URL.",
    ),
    "demo": (
        ".stack:demo",
        "Write the flights of New York 2013 into Kafka and read some of them over HTTP.",
    ),
    "down": (".stack:down", "Stop the stack."),
    "status": (".stack:status", "Show the parts, and how far topics and views are."),
    "logs": (
        ".stack:logs",
        "Show the end of a log: kafka, redis-0, ..., job, server or localstack.",
    ),
    "invoke": (".stack:invoke_function", "Invoke a function with an event, as Lambda does."),
    "dlq": (
        ".dlq:dlq",
        "Look at the dead letters of the write-ahead log, and move them back.",
    ),
    "doctor": (
        ".doctor:doctor",
        "Check Java, Redis, ports, the API, clocks and settings, and say what to do.",
    ),
    "smoke": (
        ".smoke:smoke",
        "Write, wait for, read and delete one key of a topic at URL, and say what is wrong.",
    ),
    "transform": (
        ".transform:transform",
        "Show what where, select or transform of TOPIC makes of its first records, before and after.",
    ),
    "check": (
        ".check:check",
        "Say what is wrong with keylane.toml and keylane.env, without starting anything.",
    ),
    "access": (
        ".access:access",
        "Look at the access policy of KEYLANE_ACCESS.",
    ),
    "new": (
        ".new:new",
        "Write keylane.toml and keylane.env into FOLDER, for a Kafka that exists.",
    ),
    "help": (
        ".help_pages:help_pages",
        "Print PAGE of the documents, such as troubleshooting or use/find; without one, list them.",
    ),
    "job": (".job:job", "Run the Spark job in the foreground, until SIGTERM."),
    "server": (
        ".serve:server",
        "Serve the API, as the Lambda functions do, in one process or some.",
    ),
    "serve": (
        ".serve:serve",
        "Serve the API, as the Lambda functions do, in one process or some.",
    ),
}
"""Name -> the command's module and name, and its help's first sentence: see keylane_client.cli.commands."""
