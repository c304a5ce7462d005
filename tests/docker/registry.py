"""A Schema Registry that has no subject, for topics of tests/keylane-test.toml; runs in a container."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8081
NOT_THERE = b'{"error_code": 40401, "message": "Subject not found."}'


class Registry(BaseHTTPRequestHandler):
    """Knows nothing, as Confluent's says it."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(NOT_THERE)))
        self.end_headers()
        self.wfile.write(NOT_THERE)


if __name__ == "__main__":
    ThreadingHTTPServer(("", PORT), Registry).serve_forever()
