"""Windows of a view over HTTP, on the whole stack."""

from __future__ import annotations

import json
from decimal import Decimal

from tests.servers.own import eventually


def test_written_records_are_counted_in_the_windows_of_their_key(client, key):
    for number in range(3):
        client.put("joined", key, b'{"amount": 0.1, "note": "%d"}' % number)
    path = f"/views/puts/keys/{key.decode()}"

    def rows() -> list[dict]:
        answer = client.request("GET", path)
        document = json.loads(answer.body, parse_float=Decimal)
        return document["windows"] if answer.status == 200 else []

    # Two of them where midnight falls between the writes.
    eventually(lambda: sum(row["values"]["n"] for row in rows()) == 3, 60)
    assert sum(row["values"]["total"] for row in rows()) == Decimal("0.3")
    assert rows()[-1]["values"]["last"] == "2"
    assert all(row["end"] - row["start"] == 86_400_000 and not row["final"] for row in rows()[-1:])
    found = client.request("GET", f"/views/puts/keys?prefix={key.decode()}&limit=1").json["windows"]
    assert [row["key"] for row in found] == [key.decode()]
    described = client.request("GET", "/views/puts").json
    assert described["topic"] == "joined"
    assert not described["building"]
