"""What openapi-python-client has made: a put, a get, a page and a find. Prints what was found."""

from __future__ import annotations

import importlib
import io
import json
import sys

url, key = sys.argv[1:]
topic = "bookings"


def operation(name: str):
    return importlib.import_module(f"made.api.{name}").sync


client = importlib.import_module("made").Client(base_url=url, raise_on_unexpected_status=True)
file = importlib.import_module("made.types").File(
    payload=io.BytesIO(b'{"to": "Zug", "fare": 12.5}'), mime_type="application/json"
)
written = operation("write_to_kafka.put_key")(topic, key, client=client, body=file)
wait = {"keylane_min_position": written.position, "prefer": "wait=20"}
record = operation("read_the_state.get_key")(topic, key, client=client, envelope=True, **wait)
page = operation("read_the_state.get_keys")(topic, client=client, prefix=key, limit=5)
found = operation("read_the_state.find_records")(topic, client=client, prefix=key, order="-fare", limit=5)
rows = [[row["key"] for row in each.to_dict()["records"]] for each in (page, found)]
sys.stdout.write(json.dumps([record.to_dict()["value"], *rows]))
