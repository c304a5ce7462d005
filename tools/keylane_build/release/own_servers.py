"""The servers of the walk: a Kafka with a login, a Redis Cluster and a Schema Registry."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from keylane_build.release.own_topics import SCHEMA, SCHEMA_ID
from keylane_local.process.guard import guarded
from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.kafka import Kafka
from keylane_local.servers.redis_cluster import RedisCluster

_START_S = 120.0


class KafkaWithLogin(Kafka):
    """A broker with a second listener, which asks for a password."""

    login = ""
    """The address of that listener."""

    def more_settings(self) -> str:
        """Return the settings of both listeners."""
        clients = f"PLAINTEXT://{self.bootstrap},LOGIN://{self.login}"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return (
            f"listeners={clients},CONTROLLER://{HOST}:{self.controller_port}\n"
            f"advertised.listeners={clients}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT\n"
            "listener.name.login.sasl.enabled.mechanisms=PLAIN\n"
            f'listener.name.login.plain.sasl.jaas.config={module} required user_ann="right";\n'
        )


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_known = self.path == f"/schemas/ids/{SCHEMA_ID}"
        self.send_response(200 if is_known else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"schema": SCHEMA} if is_known else {"error_code": 40403}).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def own_servers(data: Path) -> Iterator[tuple[KafkaWithLogin, RedisCluster, str]]:
    """Yield the servers, and the registry's address. They end with the block."""
    ports, run, logs = Ports(), data / "run", data / "logs"
    registry = ThreadingHTTPServer((HOST, 0), _Registry)
    threading.Thread(target=registry.serve_forever, daemon=True).start()
    with guarded(data), contextlib.closing(registry.socket):
        kafka = KafkaWithLogin(
            data / "kafka", run=run, log=logs / "kafka.log", port=ports.any(), controller_port=ports.any()
        )
        kafka.login = f"{HOST}:{ports.any()}"
        addresses = [(HOST, ports.any(), ports.any()) for _ in range(6)]
        redis = RedisCluster(data / "redis", run=run, logs=logs, addresses=addresses, appendonly=False)
        kafka.start()
        redis.start()
        kafka.wait_ready(_START_S)
        redis.wait_ready(_START_S)
        yield kafka, redis, f"http://{HOST}:{registry.server_port}"
        registry.shutdown()
