"""A fake of the service for your tests: `FakeKeylane` in memory, with real clients on it.

    fake = FakeKeylane({"orders": 9})
    with fake.client() as keylane:
        keylane.topic("orders").put("o-1", {"state": "paid"})

The same tests run against it and against the service.
"""

from keylane_client.testing.fake import FakeKeylane

__all__ = ["FakeKeylane"]
